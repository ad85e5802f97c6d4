"""The members of a classic group: one member, and the roster with its leader and static names.

Only counting and lookup; `rebalance` decides when to rebalance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from kafkaesque.broker.groups.types import DescribedMember, Protocol
from kafkaesque.model.errors import ErrorCode, InvariantBroken, check


@dataclass(slots=True, kw_only=True)
class Member:
    """One member: its own description, and the requests of it that wait for an answer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the member's order of preference; names are unique."""
    assignment: bytes = b""
    join_token: int | None = None
    """The join that waits for the join phase to end. It stays when its client disconnects: the
    member counts as joined until its session expires, as in Kafka."""
    sync_token: int | None = None
    is_new: bool = False
    """From its first join until that is answered: it cannot heartbeat, and may time out."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_token is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """A member that waits for our answer need not heartbeat."""
        if self.is_new:
            return False
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol_name: str) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise InvariantBroken(f"member {self.member_id} does not support {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that this member prefers among those that all members support."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise InvariantBroken(f"member {self.member_id} supports none of {sorted(candidates)}")

    def described(self, protocol_name: str | None) -> DescribedMember:
        return DescribedMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            assignment=self.assignment,
        )


class Roster:
    """All members of a group. Invariants: awaiting_join counts the members whose join waits; the
    leader, if any, is a member; a static name belongs to one member."""

    __slots__ = (
        "_awaiting_join",
        "_members",
        "_static_ids",
        "_supporting",
        "leader_id",
        "pending_ids",
    )

    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static_ids: dict[str, str] = {}
        self._supporting: Counter[str] = Counter()
        self._awaiting_join = 0
        self.leader_id: str | None = None
        self.pending_ids: set[str] = set()
        """Ids issued with MEMBER_ID_REQUIRED whose owners have not joined yet."""

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
        """Removes a member or a pending id; the oldest member inherits the leadership."""
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
        """`new` takes over the name and the leadership of `old` (KIP-345)."""
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
        """Keeps the leader if it rejoined, else selects a member that did; False if none did."""
        if self.leader_id is None:
            return False
        if self._members[self.leader_id].is_awaiting_join:
            return True
        for member in self:
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def supports_any(self, names: Collection[str]) -> bool:
        """Whether every member supports one of `names`."""
        return any(self._supporting[name] == len(self._members) for name in names)

    def select_protocol(self) -> str:
        """The protocol with the most votes; on a tie the one whose first voter joined first."""
        check(bool(self._members), "an empty group has no protocol")
        candidates = {
            name for name, count in self._supporting.items() if count == len(self._members)
        }
        votes = Counter(member.vote(candidates) for member in self)
        return max(votes, key=votes.__getitem__)

    def membership_error(self, member_id: str, group_instance_id: str | None) -> ErrorCode:
        """Kafka's ClassicGroup.validateMember: FENCED_INSTANCE_ID takes precedence."""
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
            self._supporting[protocol.name] += step
            if not self._supporting[protocol.name]:
                del self._supporting[protocol.name]
