"""Bytes of records made readable: what they are is found out, never believed."""
