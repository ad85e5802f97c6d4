"""A text client's membership in a consumer group: joins, sends heartbeats, follows rebalances.

It is an ordinary Kafka consumer group: text clients and Kafka clients may share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kafkaesque.broker.groups.consumer_protocol import (
    ASSIGNOR,
    PROTOCOL_TYPE,
    Assignment,
    assign_ranges,
    decode_assignment,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from kafkaesque.broker.text.requests import ClusterRequestFailed, Requests
from kafkaesque.broker.text.rules.commands import Subscribe, matches
from kafkaesque.model.errors import ErrorCode, ProtocolError
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaesque.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kafkaesque.wire.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafkaesque.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
)
from kafkaesque.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

logger = logging.getLogger("kafkaesque.text")

SESSION_TIMEOUT_MS: Final = 10_000
REBALANCE_TIMEOUT_MS: Final = 15_000
HEARTBEAT_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 0.2
LEAVE_SECONDS: Final = 1.0
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 7, 5, 4, 4
COMMIT_VERSION, OFFSETS_VERSION = 8, 7

_LOST_MEMBERSHIP = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))

Positions = Mapping[tuple[str, int], int]


class GroupMembership:
    """`start`, then `joined` whenever the assignment is needed; finally `leave`."""

    def __init__(self, requests: Requests, wanted: Subscribe) -> None:
        self._requests = requests
        self.wanted = wanted
        self._member_id = ""
        self._generation = -1
        self._topics: frozenset[str] = frozenset()
        """The topics of the last join."""
        self._assignment: Assignment | None = None
        self._joined = asyncio.Event()
        self._topics_changed = asyncio.Event()
        """The matching topics may have changed: check now."""
        self._failure: ClusterRequestFailed | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def generation(self) -> int:
        """Changes when partitions may have been reassigned."""
        return self._generation

    async def joined(self) -> Assignment:
        """The current assignment. Raises ClusterRequestFailed if it cannot join."""
        if self._joined.is_set() and self._failure is None and self._matching() != self._topics:
            self._joined.clear()
            self._topics_changed.set()
        await self._joined.wait()
        if self._failure is not None:
            raise self._failure
        return self._assignment or {}

    async def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._member_id:
            request = LeaveGroupRequest(
                group_id=self.wanted.group, members=[MemberIdentity(member_id=self._member_id)]
            )
            # If this fails, the session timeout removes the member.
            with suppress(ClusterRequestFailed, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    node = await self._requests.coordinator(self.wanted.group)
                    await self._requests.send(node, request, LeaveGroupResponse, LEAVE_VERSION)

    # -- membership ----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._join()
                self._joined.set()
                await self._keep_alive()
            except ClusterRequestFailed as error:
                if error.code in _LOST_MEMBERSHIP:
                    self._member_id = ""
                elif not _means_rejoin(error):
                    self._failure = error
                    self._joined.set()
                    return
                await asyncio.sleep(RETRY_SECONDS)
            self._joined.clear()

    async def _join(self) -> None:
        self._topics = self._matching()
        response = await self._send_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            response = await self._send_join()
        if response.error_code:
            raise ClusterRequestFailed(response.error_code)
        self._member_id = response.member_id
        self._generation = response.generation_id
        assignments: list[SyncGroupRequestAssignment] = []
        if response.leader == response.member_id:
            members = {m.member_id: subscribed_topics(bytes(m.metadata)) for m in response.members}
            assignments = self._assign({m: found or frozenset() for m, found in members.items()})
        request = SyncGroupRequest(
            group_id=self.wanted.group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=ASSIGNOR,
            assignments=assignments,
        )
        node = await self._requests.coordinator(self.wanted.group)
        synced = await self._requests.send(node, request, SyncGroupResponse, SYNC_VERSION)
        if synced.error_code:
            raise ClusterRequestFailed(synced.error_code)
        try:
            self._assignment = self._limited(decode_assignment(bytes(synced.assignment)))
        except ProtocolError as error:
            raise ClusterRequestFailed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error

    async def _send_join(self) -> JoinGroupResponse:
        metadata = encode_subscription(self._topics)
        request = JoinGroupRequest(
            group_id=self.wanted.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=ASSIGNOR, metadata=metadata)],
        )
        node = await self._requests.coordinator(self.wanted.group)
        return await self._requests.send(node, request, JoinGroupResponse, JOIN_VERSION)

    def _assign(self, members: Mapping[str, frozenset[str]]) -> list[SyncGroupRequestAssignment]:
        """As the leader of the group: assigns partitions to members."""
        tables = self._requests.cluster.tables
        wanted = frozenset[str]().union(*members.values())
        counts = {
            name: topic.partition_count
            for name in sorted(wanted)
            if (topic := tables.by_name.get(name)) is not None
        }
        return [
            SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(given))
            for member, given in assign_ranges(members, counts).items()
        ]

    def _limited(self, assignment: Assignment) -> Assignment:
        """Only the first partitions, if the client limited their number."""
        count = self.wanted.partition_count
        if count is None:
            return assignment
        return {
            topic: kept
            for topic, found in assignment.items()
            if (kept := [number for number in found if number < count])
        }

    async def _keep_alive(self) -> None:
        """Sends heartbeats until the group or the matching topics change."""
        request = HeartbeatRequest(
            group_id=self.wanted.group,
            generation_id=self._generation,
            member_id=self._member_id,
        )
        while self._matching() == self._topics:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._topics_changed.wait(), HEARTBEAT_SECONDS)
            self._topics_changed.clear()
            node = await self._requests.coordinator(self.wanted.group)
            answer = await self._requests.send(node, request, HeartbeatResponse, HEARTBEAT_VERSION)
            if answer.error_code:
                raise ClusterRequestFailed(answer.error_code)

    def _matching(self) -> frozenset[str]:
        tables = self._requests.cluster.tables
        return frozenset(name for name in tables.by_name if matches(self.wanted.topics, name))

    # -- offsets -------------------------------------------------------------------------------

    async def committed(self, assignment: Assignment) -> dict[tuple[str, int], int]:
        """The group's offsets; partitions without one are missing."""
        request = OffsetFetchRequest(
            group_id=self.wanted.group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
                for topic, partitions in assignment.items()
            ],
        )

        async def query() -> OffsetFetchResponse:
            node = await self._requests.coordinator(self.wanted.group)
            answer = await self._requests.send(node, request, OffsetFetchResponse, OFFSETS_VERSION)
            if answer.error_code:
                raise ClusterRequestFailed(answer.error_code)
            return answer

        answer = await self._requests.retry(query)
        return {
            (topic.name, result.partition_index): result.committed_offset
            for topic in answer.topics
            for result in topic.partitions
            if result.committed_offset >= 0
        }

    async def commit(self, positions: Positions, generation: int) -> None:
        """Commits `positions`, as a member of `generation`."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in positions.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=None
                )
            )
        request = OffsetCommitRequest(
            group_id=self.wanted.group,
            generation_id_or_member_epoch=generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=found)
                for name, found in topics.items()
            ],
        )
        node = await self._requests.coordinator(self.wanted.group)
        answer = await self._requests.send(node, request, OffsetCommitResponse, COMMIT_VERSION)
        for answered in answer.topics:
            for result in answered.partitions:
                if result.error_code:
                    raise ClusterRequestFailed(result.error_code)


def _means_rejoin(error: ClusterRequestFailed) -> bool:
    return error.is_retriable or error.code in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
