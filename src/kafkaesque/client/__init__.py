"""The log as services see it: ports, a driver over librdkafka, and a twin in memory.

`ports` says what a log can do; `kafka` is any Kafka (ours or Apache's, told apart by
bootstrap.servers only); `memory` is the same for tests and for trying things. A service takes a
`Log` and never learns which one it has.
"""
