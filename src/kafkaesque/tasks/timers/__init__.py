"""Timers: calls that wait for their time, in a compacted topic.

Each partition has one elected owner (`service`, `election`), which keeps its timers in a SQLite file (`store`)
and fires those that are due (`owner`, `firing`).
"""
