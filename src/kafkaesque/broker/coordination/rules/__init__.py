"""ZooKeeper's tree, sessions, watches and wire format. No I/O, no clock, no randomness.

Start at `machine.py`, which applies replicated commands; `queries.py` answers reads. Sockets and Raft
are in `broker/coordination`.
"""
