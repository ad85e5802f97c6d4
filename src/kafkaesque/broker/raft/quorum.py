"""Arithmetic of majorities."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import Enum
from typing import TypeVar

from kafkaesque.model.ids import MemberId

Number = TypeVar("Number", bound=int)


class VoteResult(Enum):
    WON = "won"
    LOST = "lost"
    PENDING = "pending"


def majority(voter_count: int) -> int:
    """The smallest size at which any two sets of voters overlap."""
    return voter_count // 2 + 1


def reached_by_majority(values: Iterable[Number], nothing: Number) -> Number:
    """The greatest number that a majority has reached; `nothing` if there are no voters."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2] if ordered else nothing


def vote_result(votes: Mapping[MemberId, bool], voters: Collection[MemberId]) -> VoteResult:
    """Counts the voters only; answers of other members are ignored."""
    granted = sum(votes.get(node, False) for node in voters)
    refused = sum(not votes.get(node, True) for node in voters)
    if not voters or refused > len(voters) - majority(len(voters)):
        return VoteResult.LOST
    return VoteResult.WON if granted >= majority(len(voters)) else VoteResult.PENDING
