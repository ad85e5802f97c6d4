"""Shared types: ids, errors, limits, settings. Standard library only; no I/O, clock or randomness."""
