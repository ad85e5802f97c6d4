"""Raft groups on real disks and links: what `raft` decides is written, sent and told here."""
