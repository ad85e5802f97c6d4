"""Arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from kafkaesque.model.ids import MemberId

Number = TypeVar("Number", bound=int)


class Verdict(Enum):
    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def majority(voter_count: int) -> int:
    """The least number of voters of which any two such sets have one in common."""
    return voter_count // 2 + 1


def reached_by_majority(values: Iterable[Number], nothing: Number) -> Number:
    """The greatest number that a majority has reached; `nothing` where nobody votes."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else nothing


def verdict(votes: Mapping[MemberId, bool], voters: Collection[MemberId]) -> Verdict:
    """Of those who vote; others may have answered too, and do not count."""
    granted = sum(votes.get(node, False) for node in voters)
    refused = sum(not votes.get(node, True) for node in voters)
    if not voters or refused > len(voters) - majority(len(voters)):
        return Verdict.LOST
    return Verdict.WON if granted >= majority(len(voters)) else Verdict.PENDING
