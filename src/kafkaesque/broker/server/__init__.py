"""The Kafka listener: reads requests from sockets, calls one handler per API, writes the answers.

A request goes through `connection`, `dispatch` and one module of `handlers` to the packages below.
The handler's return value is the answer.
"""
