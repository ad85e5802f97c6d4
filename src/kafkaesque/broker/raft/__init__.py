"""Raft as rules without I/O: `tick`, `step` and `propose` go in, a `Ready` bundle comes out.

The entry point is `core.Raft`; docs/RAFT.md is its manual. Nothing here reads a clock, draws a random
number, opens a file, starts a task or interprets an entry: the driver in `replication/` does that.
"""
