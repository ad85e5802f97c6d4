"""The Kafka listener: sockets in, one handler per API, answers out.

A request goes `connection` > `dispatch` > one file of `handlers` > the packages below. Its answer is
the handler's return value.
"""
