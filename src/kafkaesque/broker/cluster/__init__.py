"""The control plane: the cluster's brokers, topics, partitions and settings.

`rules.controller` turns a request into commands and an answer. The commands are committed in a Raft
log of their own (`controller_log`), and only replaying a committed command changes a table (`rules.tables`).
"""
