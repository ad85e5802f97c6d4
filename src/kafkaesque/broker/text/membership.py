"""A text client's membership in a consumer group: joins, keeps alive, follows rebalances.

The group is Kafka's own: its members may be text clients and Kafka clients at once, and each
partition is read by one of them.
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
from kafkaesque.broker.text.requests import Asked, Requests
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

_FORGOTTEN = frozenset((ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID))

Positions = Mapping[tuple[str, int], int]


class Membership:
    """`start`, then `joined` whenever the assignment is needed; `leave` at the end."""

    def __init__(self, requests: Requests, wanted: Subscribe) -> None:
        self._requests = requests
        self.wanted = wanted
        self._member_id = ""
        self._generation = -1
        self._topics: frozenset[str] = frozenset()
        """Those of the last join."""
        self._assignment: Assignment | None = None
        self._settled = asyncio.Event()
        self._nudged = asyncio.Event()
        """What there is to read may have changed: look now."""
        self._failure: Asked | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def generation(self) -> int:
        """Another one means that partitions may have changed hands."""
        return self._generation

    async def joined(self) -> Assignment:
        """What this member has to read now. Raises Asked if it cannot be a member."""
        if self._settled.is_set() and self._failure is None and self._matching() != self._topics:
            self._settled.clear()
            self._nudged.set()
        await self._settled.wait()
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
            # If it cannot be told in time, the group finds out by itself.
            with suppress(Asked, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    node = await self._requests.coordinator(self.wanted.group)
                    await self._requests.ask(node, request, LeaveGroupResponse, LEAVE_VERSION)

    # -- being a member ------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            try:
                await self._join()
                self._settled.set()
                await self._keep_alive()
            except Asked as error:
                if error.code in _FORGOTTEN:
                    self._member_id = ""
                elif not _means_rejoin(error):
                    self._failure = error
                    self._settled.set()
                    return
                await asyncio.sleep(RETRY_SECONDS)
            self._settled.clear()

    async def _join(self) -> None:
        self._topics = self._matching()
        response = await self._ask_to_join()
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = response.member_id
            response = await self._ask_to_join()
        if response.error_code:
            raise Asked(response.error_code)
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
        synced = await self._requests.ask(node, request, SyncGroupResponse, SYNC_VERSION)
        if synced.error_code:
            raise Asked(synced.error_code)
        try:
            self._assignment = self._limited(decode_assignment(bytes(synced.assignment)))
        except ProtocolError as error:
            raise Asked(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from error

    async def _ask_to_join(self) -> JoinGroupResponse:
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
        return await self._requests.ask(node, request, JoinGroupResponse, JOIN_VERSION)

    def _assign(self, members: Mapping[str, frozenset[str]]) -> list[SyncGroupRequestAssignment]:
        """This member was chosen to decide who reads what."""
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
        """To the first partitions only, where so many were asked for."""
        count = self.wanted.partition_count
        if count is None:
            return assignment
        return {
            topic: kept
            for topic, found in assignment.items()
            if (kept := [number for number in found if number < count])
        }

    async def _keep_alive(self) -> None:
        """Until the group, or what there is to read, changes."""
        request = HeartbeatRequest(
            group_id=self.wanted.group,
            generation_id=self._generation,
            member_id=self._member_id,
        )
        while self._matching() == self._topics:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), HEARTBEAT_SECONDS)
            self._nudged.clear()
            node = await self._requests.coordinator(self.wanted.group)
            answer = await self._requests.ask(node, request, HeartbeatResponse, HEARTBEAT_VERSION)
            if answer.error_code:
                raise Asked(answer.error_code)

    def _matching(self) -> frozenset[str]:
        tables = self._requests.cluster.tables
        return frozenset(name for name in tables.by_name if matches(self.wanted.topics, name))

    # -- where the group is --------------------------------------------------------------------

    async def committed(self, assignment: Assignment) -> dict[tuple[str, int], int]:
        """The group's offsets; partitions without one are missing."""
        request = OffsetFetchRequest(
            group_id=self.wanted.group,
            topics=[
                OffsetFetchRequestTopic(name=topic, partition_indexes=partitions)
                for topic, partitions in assignment.items()
            ],
        )

        async def look() -> OffsetFetchResponse:
            node = await self._requests.coordinator(self.wanted.group)
            answer = await self._requests.ask(node, request, OffsetFetchResponse, OFFSETS_VERSION)
            if answer.error_code:
                raise Asked(answer.error_code)
            return answer

        answer = await self._requests.persist(look)
        return {
            (topic.name, told.partition_index): told.committed_offset
            for topic in answer.topics
            for told in topic.partitions
            if told.committed_offset >= 0
        }

    async def commit(self, positions: Positions, generation: int) -> None:
        """Say that everything before `positions` was read, as a member of that generation."""
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
        answer = await self._requests.ask(node, request, OffsetCommitResponse, COMMIT_VERSION)
        for answered in answer.topics:
            for told in answered.partitions:
                if told.error_code:
                    raise Asked(told.error_code)


def _means_rejoin(error: Asked) -> bool:
    return error.is_passing or error.code in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MEMBER_ID_REQUIRED,
    )
