"""Random ids and random numbers."""

from __future__ import annotations

import os
import random


def new_id() -> str:
    return os.urandom(16).hex()


def new_span_id() -> str:
    return os.urandom(8).hex()


def chance() -> float:
    """From [0, 1): spreads delays, decides nothing that must be hard to guess."""
    return random.random()  # noqa: S311
