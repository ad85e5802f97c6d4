"""Calls that wait for their time: a compacted topic, an elected owner a partition, a file on disk."""
