"""The coordination service: ZooKeeper's protocol on a socket, over a replicated log of commands.

The rules of znodes and sessions are in `rules/`. Start at `server.py`; `replicated.py` is the
interface to consensus, `raft_group.py` its implementation.
"""
