"""One member of a classic group: what it said about itself and what it is waiting for."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from kafkaesque.broker.groups.types import DescribedMember, Protocol
from kafkaesque.model.errors import InvariantBroken


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    """In the order of the member's liking; names are unique."""
    assignment: bytes = b""
    join_token: int | None = None
    """The join that waits for the join phase to end. It stays when its client is gone: the member
    counts as joined until its session says otherwise, as in Kafka."""
    sync_token: int | None = None
    is_new: bool = False
    """Since its first join, until that is answered: it cannot heartbeat and may be timed out."""

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        return self.join_token is not None

    @property
    def needs_no_heartbeat(self) -> bool:
        """Whoever waits for our answer cannot be expected to call."""
        if self.is_new:
            return False
        return self.join_token is not None or self.sync_token is not None

    def metadata(self, protocol_name: str) -> bytes:
        for protocol in self.protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise InvariantBroken(f"member {self.member_id} does not know {protocol_name}")

    def vote(self, candidates: Collection[str]) -> str:
        """The protocol that this member likes best among those that all members know."""
        for protocol in self.protocols:
            if protocol.name in candidates:
                return protocol.name
        raise InvariantBroken(f"member {self.member_id} knows none of {sorted(candidates)}")

    def described(self, protocol_name: str | None) -> DescribedMember:
        return DescribedMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            assignment=self.assignment,
        )
