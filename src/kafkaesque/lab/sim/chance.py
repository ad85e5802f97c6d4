"""All chance comes from the seed, in streams of its own for each part: one more draw in one part
must not change what happens in the others."""

from __future__ import annotations

from random import Random


def chance(seed: int, part: str) -> Random:
    """Equal arguments, equal stream; also in another process (a text is not seeded by its hash)."""
    return Random(f"{seed}/{part}")  # noqa: S311 - it has to be repeatable, not secret
