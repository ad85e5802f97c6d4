"""Formats and rules of replication, without I/O: peer messages, journal records, liveness."""
