"""The inputs and outputs of the group rules.

Requests and answers are the protocol's messages without their wire versions; where a rule depends on
the version, the request has `api_version`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import (
    NO_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    NO_TOPIC_ID,
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerIdentity,
    TimestampMs,
    TopicId,
)
from kafkaesque.records.log_fields import LogRecord

NO_MEMBER_ID: Final = ""
NO_GENERATION: Final = -1
CONSUMER_PROTOCOL_TYPE: Final = "consumer"
CLASSIC_GROUP_TYPE: Final = "Classic"


class Protocol(NamedTuple):
    """An assignor that a member supports, with its metadata for the leader (opaque here)."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    group_id: str
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """-1 in v0, which has no such field: the session timeout applies."""
    protocol_type: str
    protocols: tuple[Protocol, ...]
    api_version: int

    @property
    def must_know_member_id(self) -> bool:
        """KIP-394: from v4 on a dynamic member joins twice, so that a lost answer leaves no member."""
        return self.api_version >= 4

    @property
    def can_skip_assignment(self) -> bool:
        """KIP-814: from v9 on the answer can have a returning static leader keep the assignment."""
        return self.api_version >= 9


class JoinedMember(NamedTuple):
    """A member as its leader sees it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error: ErrorCode = ErrorCode.NONE
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    """Versions before 7 write None as ""."""
    leader: str = NO_MEMBER_ID
    skip_assignment: bool = False
    member_id: str = NO_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()
    """All members for the leader, none for the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """(member id, assignment); used from the leader only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeartbeat:
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatAnswer:
    error: ErrorCode = ErrorCode.NONE


class LeavingMember(NamedTuple):
    """A static member may be named by its instance id alone, with an empty member id (KIP-345)."""

    member_id: str
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveRequest:
    """Versions 0 to 2 name one member: a tuple of one."""

    group_id: str
    members: tuple[LeavingMember, ...]


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveAnswer:
    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()

    @property
    def single_error(self) -> ErrorCode:
        """The error in versions 0 to 2: of the request, or else of its one member."""
        if self.error is not ErrorCode.NONE or not self.members:
            return self.error
        return self.members[0].error


class OffsetToCommit(NamedTuple):
    partition: PartitionIndex
    offset: Offset
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str | None = None
    commit_timestamp_ms: TimestampMs = NO_TIMESTAMP
    """-1 means now; only version 1 of OffsetCommit sends another value."""


class TopicToCommit(NamedTuple):
    topic: str
    partitions: tuple[OffsetToCommit, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    group_id: str
    generation_id: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None
    retention_ms: int = -1
    """`retention_time_ms` of versions 2 to 4; -1 means the broker's retention."""
    topics: tuple[TopicToCommit, ...]
    api_version: int
    producer: ProducerIdentity | None = None
    """Set for TxnOffsetCommit: the offsets take effect when the producer's transaction commits."""


class OffsetResult(NamedTuple):
    partition: PartitionIndex
    error: ErrorCode


class TopicResult(NamedTuple):
    topic: str
    partitions: tuple[OffsetResult, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitAnswer:
    """An error of the whole request is repeated at every partition: the protocol has no other place."""

    topics: tuple[TopicResult, ...]


class TopicToFetch(NamedTuple):
    topic: str
    partitions: tuple[PartitionIndex, ...]
    topic_id: TopicId = NO_TOPIC_ID


class FetchedOffset(NamedTuple):
    partition: PartitionIndex
    offset: Offset = NO_OFFSET
    leader_epoch: LeaderEpoch = NO_EPOCH
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


class FetchedTopic(NamedTuple):
    topic: str
    partitions: tuple[FetchedOffset, ...]
    topic_id: TopicId = NO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsRequest:
    group_id: str
    topics: tuple[TopicToFetch, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOffsetsAnswer:
    error: ErrorCode = ErrorCode.NONE
    topics: tuple[TopicResult, ...] = ()


class DeletedGroup(NamedTuple):
    group_id: str
    error: ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteGroupsAnswer:
    groups: tuple[DeletedGroup, ...]


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    """Empty unless the group is Stable."""
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class GroupListing(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    group_type: str


AnswerValue: TypeAlias = (
    JoinAnswer
    | SyncAnswer
    | HeartbeatAnswer
    | LeaveAnswer
    | CommitAnswer
    | DeleteOffsetsAnswer
    | DeleteGroupsAnswer
)


class GroupAnswer(NamedTuple):
    """The answer to the request with `token`. A token is answered at most once."""

    token: int
    value: AnswerValue


@dataclass(frozen=True, slots=True)
class GroupEffects:
    """What the driver must do, in this order, once a call has returned:

    1. append `records` to the log and wait until they are committed; with a `producer`, in batches
       of its transaction;
    2. call `replay` with each of them, in order (this is how committed offsets become visible), or
       `replay_pending` if there is a `producer`; the marker of its transaction, which others append,
       is passed to `replay_marker`;
    3. deliver `answers`.

    The effects of one registry are completed in the order of the calls: an answer without records
    waits for the appends of earlier calls, because it depends on state that those records make
    durable (Kafka's CoordinatorRuntime does the same). If an append fails, the driver drops the
    registry, answers every waiting token with the error, and rebuilds a registry from the log: the
    rules need no rollback. The token of the request itself may have no answer yet: it comes with
    the effects of a later call. After every call `next_deadline` may have changed.
    """

    records: tuple[LogRecord, ...] = ()
    answers: tuple[GroupAnswer, ...] = ()
    producer: ProducerIdentity | None = None


NOTHING: Final = GroupEffects()
