"""The control plane: what topics, partitions and settings the cluster has.

A request becomes commands and an answer (`controller`); only replaying a committed command changes
a table (`tables`); the commands live in a log of their own (`journal`).
"""
