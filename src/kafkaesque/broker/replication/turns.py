"""Who stands for election first when a leader is gone: the members of a group take turns.

Chance alone has the two that are left of three draw the same of five numbers once in five times;
both stand, each votes for itself, and nothing happens for one or two seconds.
"""

from __future__ import annotations

import random

from kafkaesque.broker.raft.core import Raft
from kafkaesque.model.ids import GroupId, MemberId


class Turns:
    """A Jitter of Raft that draws from this member's own part of the range. Whose part is the first
    differs from group to group, so that a lost broker's leaderships are shared by all others.

    Members whose memberships differ, as during a change, may have the same part: then chance
    decides within it, as it does for whoever is no voter.
    """

    __slots__ = ("_group", "_member", "raft")

    def __init__(self, member: MemberId, group: GroupId) -> None:
        self._member = member
        self._group = group
        self.raft: Raft | None = None
        """Known only after this object: until then chance decides."""

    def __call__(self, bound: int) -> int:
        voters = () if self.raft is None else self.raft.membership.voters
        count = len(voters)
        if self._member not in voters or count < 2 or bound < count:
            return random.randrange(bound)  # noqa: S311 - keeps candidates apart, hides nothing
        turn = (voters.index(self._member) + self._group) % count
        width = bound // count
        return turn * (bound - width) // (count - 1) + random.randrange(width)  # noqa: S311
