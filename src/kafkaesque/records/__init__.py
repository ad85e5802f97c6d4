"""The record batch format, which is the same on the wire and on disk. No I/O, no clock."""
