"""The command line. Top of the house: it may import anything, and nothing imports it.

`main` loads commands lazily; a command group is a file. Operating commands talk to any Kafka by
confluent-kafka through `client`, and everything a person or a script reads goes through `render`.
"""
