"""Tests of the console: rules, decoders, access control, and a real console with a real broker."""
