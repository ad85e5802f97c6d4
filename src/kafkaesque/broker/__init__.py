"""The broker: Apache Kafka's protocol over a log that Raft replicates.

A record passes through the folders in this order:

    server/        socket, frames, one handler per Kafka API
    partitions/    the leader's rules for one partition: admission, producer state, waiting readers
    replication/   one Raft group per partition: append, send to followers, sync, commit
    storage/       segments and indexes on disk

Beside that path: `cluster/` (topics, brokers, settings, placement), `raft/` (consensus), `groups/`
and `transactions/` (the two coordinators), `coordination/` (ZooKeeper's protocol) and `text/` (the
telnet protocol). `node.py` builds a broker from these parts and starts it.

`raft`, `groups`, `transactions` and every folder named `rules` are free of I/O.
"""
