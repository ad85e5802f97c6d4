"""Runs Raft groups on real disks and connections: writes, sends and applies what `raft` decides."""
