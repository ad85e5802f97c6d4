"""Who should own which partition: the same answer for everyone who knows the same members. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def owner_of(partition: int, members: Iterable[str]) -> str | None:
    """By highest weight: who comes or goes moves no partition but its own."""
    return max(members, key=lambda member: _weight(member, partition), default=None)


def share_of(member: str, members: Iterable[str], partitions: int) -> frozenset[int]:
    everyone = sorted(set(members))
    return frozenset(one for one in range(partitions) if owner_of(one, everyone) == member)


def _weight(member: str, partition: int) -> bytes:
    return hashlib.blake2b(f"{partition}/{member}".encode(), digest_size=8).digest()
