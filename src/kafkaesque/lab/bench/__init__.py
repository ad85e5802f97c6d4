"""Measures our broker beside a bare server and Apache Kafka, in turns, in one run.

Lives here: load generators, the peers under test, statistics, and one module a benchmark. Knows
servers only by their sockets and by /proc; imports `wire` and `records` to build its requests and
nothing of the broker. Never asserts a time: what it finds is reported, with the goal beside it.
"""
