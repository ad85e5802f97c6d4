"""ZooKeeper's tree, sessions, watches and wire format as plain values. No I/O, no clock, no chance.

The driver, with its sockets and its journal, is `broker/coordination`. Start at `machine.py`: what
a replicated command does; `queries.py` is what a read sees.
"""
