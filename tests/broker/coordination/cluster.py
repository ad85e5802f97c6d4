"""Coordination servers over one log in memory, which a test controls, instead of Raft.

Every server applies the same commands; a follower can be held back, and the quorum taken away. As a
context manager the servers run on an event loop in a separate thread, and tests connect to them over
sockets; `start` and `stop` run them on the test's own loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import TypeVar

from kafkaesque.broker.coordination.config import CoordinationConfig
from kafkaesque.broker.coordination.coordinator import Coordinator
from kafkaesque.broker.coordination.replicated import NotCommitted
from kafkaesque.broker.coordination.rules.machine import ApplyResult, Machine
from kafkaesque.broker.coordination.server import CoordinationServer
from kafkaesque.model.clock import Clock
from kafkaesque.service.clock import SystemClock
from kafkaesque.testing.clock import ManualClock

T = TypeVar("T")

EXPIRY_SLACK_S = 0.1
CONFIG = CoordinationConfig(min_session_timeout_ms=400, tick_interval_ms=50, reap_interval_ms=200)


class Replica:
    """One server's `Replicated`."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._waiting: dict[int, asyncio.Future[ApplyResult]] = {}
        self.applied = 0
        self.is_held = False
        self.coordinator = Coordinator(Machine(), cluster.clock, EXPIRY_SLACK_S)
        self.server = CoordinationServer(
            self.coordinator, self, cluster.clock, cluster.config, cluster.failures.append
        )

    @property
    def is_leader(self) -> bool:
        return self._cluster.leader == self._number

    @property
    def is_voter(self) -> bool:
        return True

    @property
    def term(self) -> int:
        return self._cluster.term

    @property
    def is_available(self) -> bool:
        return self._number not in self._cluster.cut_off

    def propose(self, command: bytes) -> asyncio.Future[ApplyResult]:
        future: asyncio.Future[ApplyResult] = asyncio.get_running_loop().create_future()
        if not self.is_available:
            future.set_exception(NotCommitted("no quorum"))
            return future
        self._cluster.log.append(command)
        self._waiting[len(self._cluster.log)] = future
        asyncio.get_running_loop().call_soon(self._cluster.spread)
        return future

    async def read_barrier(self) -> None:
        target = len(self._cluster.log)
        while self.applied < target:
            await asyncio.sleep(0.005)

    def touch_sessions(self, session_ids: Collection[int]) -> None:
        self._cluster.replicas[self._cluster.leader].coordinator.sessions_touched(session_ids)

    def catch_up(self) -> None:
        while not self.is_held and self.applied < len(self._cluster.log):
            self.applied += 1
            outcome = self.coordinator.apply(self.applied, self._cluster.log[self.applied - 1])
            future = self._waiting.pop(self.applied, None)
            if future is not None and not future.done():
                future.set_result(outcome)


class Cluster:
    """`size` servers."""

    def __init__(
        self,
        size: int,
        config: CoordinationConfig = CONFIG,
        clock: Clock | None = None,
        log: list[bytes] | None = None,
    ) -> None:
        """`log`: the commands of servers that ran before, which these replay."""
        self.config = config
        self.clock = clock or SystemClock()
        self.log: list[bytes] = [] if log is None else log
        self.leader = 0
        self.term = 1
        self.cut_off: set[int] = set()
        self.failures: list[BaseException] = []
        self.replicas: list[Replica] = []
        self._size = size

    def spread(self) -> None:
        for number, replica in enumerate(self.replicas):
            if number not in self.cut_off:
                replica.catch_up()

    def __enter__(self) -> Cluster:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.start(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.stop(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()
        assert self.failures == []

    async def start(self, port: int = 0) -> None:
        """`port`: of the first server."""
        self.replicas = [Replica(self, number) for number in range(self._size)]
        self.spread()
        for number, replica in enumerate(self.replicas):
            await replica.server.start("127.0.0.1", 0 if number else port)

    async def stop(self) -> None:
        for replica in self.replicas:
            await replica.server.stop()

    def address(self, number: int) -> str:
        host, port = self.replicas[number].server.address
        return f"{host}:{port}"

    def run(self, action: Callable[[], T]) -> T:
        """Runs `action` on the servers' own thread."""

        async def call() -> T:
            return action()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(10)

    def stop_server(self, number: int) -> None:
        """Its socket closes; its replica continues to apply commands."""
        stopping = self.replicas[number].server.stop()
        asyncio.run_coroutine_threadsafe(stopping, self._loop).result(10)

    def hold(self, number: int, held: bool) -> None:
        """While held, this follower applies nothing."""

        def change() -> None:
            self.replicas[number].is_held = held
            self.spread()

        self.run(change)

    def cut(self, *numbers: int) -> None:
        """Takes the quorum away from these servers only."""

        def change() -> None:
            self.cut_off = set(numbers)
            self.spread()

        self.run(change)

    def outstanding(self, number: int) -> int:
        """Requests that this server has read and not answered yet."""
        connections = self.replicas[number].server._connections
        return self.run(lambda: sum(one.outstanding for one in connections))

    def pass_time(self, seconds: float) -> None:
        """Advances a manual clock tick by tick; every server sees every tick, the leader last."""
        asyncio.run_coroutine_threadsafe(self._pass_time(seconds), self._loop).result(30)

    async def _pass_time(self, seconds: float) -> None:
        assert isinstance(self.clock, ManualClock)
        tick_s = self.config.tick_interval_ms / 1000
        for _ in range(round(seconds / tick_s)):
            await asyncio.sleep(0)  # read what has arrived
            self.clock.advance(tick_s)
            for replica in sorted(self.replicas, key=lambda replica: replica.is_leader):
                await replica.server.tick()

    def elect(self, number: int) -> None:
        def change() -> None:
            self.leader, self.term = number, self.term + 1

        self.run(change)
