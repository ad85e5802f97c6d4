"""Load that holds things open: idle connections, and members of consumer groups.

Both print a first line of JSON once everything is in place, then hold until standard input ends.
"""

from __future__ import annotations

import asyncio
import json
import select
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.lab.harness.proc import raise_open_file_limit
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kafkaesque.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from kafkaesque.wire.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from kafkaesque.wire.table import Request, Response

FIND_COORDINATOR_VERSION = 2
JOIN_VERSION = 5
SYNC_VERSION = 3
HEARTBEAT_VERSION = 3
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 120_000
HEARTBEAT_S = 3.0
"""`heartbeat.interval.ms` of the Java consumer."""
RETRY_S = 0.1
SETTLE_TIMEOUT_S = 180.0

_SUBSCRIPTION = b"\0\0\0\0\0\x01\0\x05bench\xff\xff\xff\xff"
"""ConsumerProtocolSubscription v0: topic `bench`, no user data."""
_ASSIGNMENT = b"\0\0\0\0\0\0\xff\xff\xff\xff"

R = TypeVar("R", bound=Response)


def idle_connections(spec: Mapping[str, Any]) -> dict[str, float]:
    """Open `count` connections, send one request on each, and keep them open."""
    raise_open_file_limit()
    started = time.perf_counter()
    held = [requests.connect(spec["host"], spec["port"]) for _ in range(spec["count"])]
    _report_held(time.perf_counter() - started)
    sys.stdin.read()
    poller = select.poll()
    for sock in held:
        poller.register(sock, select.POLLIN)
    alive = len(held) - len(poller.poll(0))
    for sock in held:
        sock.close()
    return {"alive": alive}


def group_members(spec: Mapping[str, Any]) -> dict[str, float]:
    """Join `count` members in `groups` consumer groups, each on a connection of its own."""
    raise_open_file_limit()
    return asyncio.run(_hold_members(spec))


def _report_held(elapsed_s: float) -> None:
    print(json.dumps({"elapsed_s": elapsed_s}), flush=True)


@dataclass(slots=True)
class IdleGroup:
    """The shared state of the members of one consumer group."""

    name: str
    size: int
    synced: dict[str, int] = field(default_factory=dict)
    heartbeats: int = 0
    rebalances: int = 0

    @property
    def is_settled(self) -> bool:
        """Whether every member has its assignment, all of the same generation."""
        return len(self.synced) == self.size and len(set(self.synced.values())) == 1


async def _hold_members(spec: Mapping[str, Any]) -> dict[str, float]:
    count = spec["count"] // spec["groups"]
    groups = [IdleGroup(f"{spec['prefix']}-{index}", count) for index in range(spec["groups"])]
    started = time.perf_counter()
    await _find_coordinators(spec, groups)
    members = [
        asyncio.create_task(_IdleMember(group, index).live(spec["host"], spec["port"]))
        for group in groups
        for index in range(group.size)
    ]
    deadline = started + SETTLE_TIMEOUT_S
    while not all(group.is_settled for group in groups):
        for task in members:
            if task.done():
                task.result()
        if time.perf_counter() > deadline:
            raise LoadFailed("the groups did not settle")
        await asyncio.sleep(RETRY_S)
    _report_held(time.perf_counter() - started)
    before = sum(group.heartbeats for group in groups)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    heartbeats = sum(group.heartbeats for group in groups) - before
    settled = sum(group.is_settled for group in groups)
    for task in members:
        task.cancel()
    await asyncio.gather(*members, return_exceptions=True)
    rebalances = sum(group.rebalances for group in groups)
    return {"heartbeats": heartbeats, "rebalances": rebalances, "settled_groups": settled}


async def _find_coordinators(spec: Mapping[str, Any], groups: list[IdleGroup]) -> None:
    """Retry until each group has one: the first request makes a broker create its offsets topic."""
    link = await _connect(spec["host"], spec["port"])
    for group in groups:
        request = FindCoordinatorRequest(key=group.name)
        for _ in range(int(SETTLE_TIMEOUT_S / RETRY_S)):
            answer = await _call(link, request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
            if answer.error_code == 0:
                break
            await asyncio.sleep(RETRY_S)
    link.close()


async def _connect(host: str, port: int) -> AsyncConnection:
    """A patient connection: thousands of members connect at once."""
    return await AsyncConnection.open(
        Address(host, port),
        client_id=requests.CLIENT_ID,
        negotiates=False,
        timeout_s=SETTLE_TIMEOUT_S,
    )


async def _call(link: AsyncConnection, request: Request, version: int, answer: type[R]) -> R:
    """A broker answers JoinGroup when all members have joined, so a call may take as long."""
    return await link.call(request, answer, version=version, timeout_s=SETTLE_TIMEOUT_S)


class _IdleMember:
    """One member with the classic protocol: join, sync, heartbeats, and again after a rebalance."""

    def __init__(self, group: IdleGroup, index: int) -> None:
        self._group = group
        self._key = f"{group.name}-{index}"
        self._member_id = ""

    async def live(self, host: str, port: int) -> None:
        link = await _connect(host, port)
        try:
            while True:
                generation = await self._join(link)
                if generation is not None:
                    await self._send_heartbeats(link, generation)
        finally:
            link.close()

    async def _join(self, link: AsyncConnection) -> int | None:
        """The generation in which this member has its assignment; None means retry."""
        request = JoinGroupRequest(
            group_id=self._group.name,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION)],
        )
        joined = await _call(link, request, JOIN_VERSION, JoinGroupResponse)
        self._member_id = joined.member_id
        if joined.error_code:
            await self._after_error(joined.error_code)
            return None
        is_leader = joined.leader == joined.member_id
        assignments = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=_ASSIGNMENT)
            for member in (joined.members if is_leader else [])
        ]
        sync = SyncGroupRequest(
            group_id=self._group.name,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            assignments=assignments,
        )
        synced = await _call(link, sync, SYNC_VERSION, SyncGroupResponse)
        if synced.error_code:
            await self._after_error(synced.error_code)
            return None
        self._group.synced[self._key] = joined.generation_id
        return joined.generation_id

    async def _send_heartbeats(self, link: AsyncConnection, generation: int) -> None:
        """Heartbeats until the group rebalances."""
        request = HeartbeatRequest(
            group_id=self._group.name, generation_id=generation, member_id=self._member_id
        )
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            answer = await _call(link, request, HEARTBEAT_VERSION, HeartbeatResponse)
            if answer.error_code:
                self._group.synced.pop(self._key, None)
                self._group.rebalances += 1
                await self._after_error(answer.error_code)
                return
            self._group.heartbeats += 1

    async def _after_error(self, code: int) -> None:
        if code in (ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.REBALANCE_IN_PROGRESS):
            return
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""
            return
        if code in (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ErrorCode.NOT_COORDINATOR,
        ):
            await asyncio.sleep(RETRY_S)
            return
        raise LoadFailed(f"a group member got error {code}")
