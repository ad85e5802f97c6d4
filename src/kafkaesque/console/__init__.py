"""The console: a whole cluster on one page, live, and the few things that an operator does to it.

It meets a cluster at its sockets only: Kafka's protocol, the brokers' /metrics, coordination by
ZooKeeper's protocol. With an Apache Kafka behind it, what only ours can show is absent.

`rules` decide without I/O; `decoding` makes bytes readable; `cluster`, `messages` and `services` ask;
`web` answers.
"""
