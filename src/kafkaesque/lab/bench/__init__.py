"""Measures our broker beside a bare server and Apache Kafka, alternately, in one run.

Has load generators, the servers under test, statistics, and one module per benchmark in `suites`. Servers
are used only through their sockets and /proc; nothing of the broker is imported. A benchmark never fails
because of a time: figures are reported beside their goals.
"""
