"""Consensus on a log as rules without I/O: `tick`, `step`, `propose` in, one `Ready` bundle out.

The one entry is `core.Raft`; docs/RAFT.md is its manual. Nothing here reads a clock, rolls a die,
opens a file, starts a task or knows what an entry means: the driver in `replication/` does that.
"""
