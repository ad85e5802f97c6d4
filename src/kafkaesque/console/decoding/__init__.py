"""Decoders for record keys and values. The format is detected from the bytes."""
