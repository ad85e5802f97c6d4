"""Who is in a group: members, static names, promised ids, the leader, and what all can speak.

Only counting and looking up; when to rebalance is decided in `rebalance`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from kafkaesque.broker.groups.member import Member
from kafkaesque.broker.groups.types import Protocol
from kafkaesque.model.errors import ErrorCode, check


class Roster:
    """Invariants: awaiting_join = members whose join waits; the leader, if any, is a member;
    a static name belongs to one member."""

    __slots__ = (
        "_awaiting_join",
        "_knowing",
        "_members",
        "_static_ids",
        "leader_id",
        "pending_ids",
    )

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._knowing: Counter[str] = Counter()
        self._awaiting_join = 0
        self.leader_id: str | None = None
        self.pending_ids: set[str] = set()
        """Ids handed out with MEMBER_ID_REQUIRED whose owners have not come back yet."""

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """In the order in which they joined."""
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    @property
    def awaiting_join(self) -> int:
        return self._awaiting_join

    @property
    def all_joined(self) -> bool:
        return self._awaiting_join == len(self._members) and not self.pending_ids

    @property
    def rebalance_timeout_ms(self) -> int:
        """The slowest member decides how long a rebalance may take."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def static_member_id(self, group_instance_id: str) -> str | None:
        return self._static_ids.get(group_instance_id)

    def add(self, member: Member) -> None:
        check(member.member_id not in self._members, f"member {member.member_id} joined twice")
        if member.group_instance_id is not None:
            check(
                member.group_instance_id not in self._static_ids,
                f"static member {member.group_instance_id} joined twice",
            )
            self._static_ids[member.group_instance_id] = member.member_id
        self._members[member.member_id] = member
        self._count_protocols(member, +1)
        self._awaiting_join += member.is_awaiting_join
        self.pending_ids.discard(member.member_id)
        if self.leader_id is None:
            self.leader_id = member.member_id

    def remove(self, member_id: str) -> Member | None:
        """Take out a member or a promised id; the longest-standing member inherits the lead."""
        self.pending_ids.discard(member_id)
        member = self._members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        self._awaiting_join -= member.is_awaiting_join
        if member.group_instance_id is not None:
            del self._static_ids[member.group_instance_id]
        if self.leader_id == member_id:
            self.leader_id = next(iter(self._members), None)
        return member

    def replace_static(self, old: Member, new: Member) -> None:
        """`new` takes the place, the name and the lead of `old` (KIP-345)."""
        check(old.group_instance_id is not None, "only a static member can be replaced")
        check(old.group_instance_id == new.group_instance_id, "a replacement keeps its name")
        was_leader = self.leader_id == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if was_leader:
            self.leader_id = new.member_id

    def set_join_token(self, member: Member, token: int | None) -> None:
        self._awaiting_join += (token is not None) - member.is_awaiting_join
        member.join_token = token

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, +1)

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it rejoined, else give the lead to someone who did, if anyone."""
        if self.leader_id is None:
            return False
        if self._members[self.leader_id].is_awaiting_join:
            return True
        for member in self:
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def knows_any(self, names: Collection[str]) -> bool:
        """Whether one of `names` is known to every member."""
        return any(self._knowing[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """The most votes win; among equals the one whose first voter joined first."""
        check(bool(self._members), "an empty group has no protocol")
        candidates = {name for name, count in self._knowing.items() if count == len(self._members)}
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=votes.__getitem__)

    def membership_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Kafka's ClassicGroup.validateMember: fencing is told before ignorance."""
        if group_instance_id is not None:
            owner = self._static_ids.get(group_instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        if member_id not in self._members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _count_protocols(self, member: Member, step: int) -> None:
        for protocol in member.protocols:
            self._knowing[protocol.name] += step
            if not self._knowing[protocol.name]:
                del self._knowing[protocol.name]
