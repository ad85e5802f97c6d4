"""Requests to the back ends through the log: commands, and requests with a correlated reply."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from kafkaesque.client.ports import LogError, Record
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import Command, CommandHeaders, Reply, encode_value
from kafkaesque.gateway.batching_writer import BatchingWriter, OnWritten
from kafkaesque.gateway.coordination import GatewayCoordination
from kafkaesque.gateway.counters import Counters
from kafkaesque.model.clock import Clock

PENDING_MAX = 20_000

OnReply = Callable[[Reply | None], None]
"""Called with the reply, or with None if it did not arrive in time."""


class PendingReplies:
    """Requests that wait for their reply, by correlation id.

    Bounded by `count_max`. All have the same timeout, so the oldest expires first. Time is an argument, in
    seconds.
    """

    def __init__(self, name: str, timeout_s: float, count_max: int) -> None:
        """`name` is the prefix of the correlation ids; it must be unique to this process."""
        self._name = name
        self._timeout_s = timeout_s
        self._count_max = count_max
        self._number = 0
        self._waiting: dict[str, OnReply] = {}
        self._due: deque[tuple[float, str]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, on_reply: OnReply, now_s: float) -> str | None:
        """Returns the correlation id to send with the request; None if too many requests wait."""
        if len(self._waiting) >= self._count_max:
            return None
        self._number += 1
        correlation = f"{self._name}-{self._number}"
        self._waiting[correlation] = on_reply
        self._due.append((now_s + self._timeout_s, correlation))
        return correlation

    def resolve(self, correlation: str, reply: Reply) -> bool:
        """Returns False for a reply without a waiting request: a duplicate, or too late."""
        on_reply = self._waiting.pop(correlation, None)
        if on_reply is None:
            return False
        on_reply(reply)
        return True

    def discard(self, correlation: str) -> None:
        """The request was not sent."""
        self._waiting.pop(correlation, None)

    def expire(self, now_s: float) -> int:
        """Ends the requests whose time is up. Returns how many."""
        count = 0
        for correlation in self._overdue(now_s):
            on_reply = self._waiting.pop(correlation, None)
            if on_reply is not None:
                on_reply(None)
                count += 1
        return count

    def _overdue(self, now_s: float) -> Iterator[str]:
        while self._due and self._due[0][0] <= now_s:
            yield self._due.popleft()[1]


class BackendClient:
    """Writes requests of clients, and of the gateway on their behalf, to the back ends' topics."""

    def __init__(
        self,
        gateway: str,
        pending: PendingReplies,
        writer: BatchingWriter,
        coordination: GatewayCoordination,
        clock: Clock,
        counters: Counters,
    ) -> None:
        self._gateway = gateway
        self._pending = pending
        self._writer = writer
        self._coordination = coordination
        self._clock = clock
        self._counters = counters

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    def serves(self, app_version: str) -> bool:
        """Whether there is a route for this application version."""
        return self._coordination.routes.topic_of(app_version) is not None

    def send(
        self, user: str, command: Command, command_id: str, app_version: str, written: OnWritten
    ) -> bool:
        """Writes a command. Returns False if too many records wait already. Raises MalformedEvent if it
        is too large for the log."""
        record = self._record(user, command, command_id, app_version)
        self._counters.commands += 1
        return self._writer.submit(record, written)

    def request(
        self,
        user: str,
        command: Command,
        command_id: str,
        app_version: str,
        on_reply: OnReply,
        *,
        anonymous: bool = False,
    ) -> bool:
        """Writes a request. Returns False if too many wait already. `on_reply` gets None if no reply
        arrives in time or the request could not be written. Raises MalformedEvent if it is too large."""
        correlation = self._pending.add(on_reply, self._clock.monotonic())
        if correlation is None:
            return False
        self._counters.asks += 1

        def written(failure: LogError | None) -> None:
            if failure is not None:
                self._pending.discard(correlation)
                on_reply(None)

        try:
            record = self._record(
                user, command, command_id, app_version, correlation=correlation, anonymous=anonymous
            )
        except MalformedEvent:
            # The caller handles it.
            self._pending.discard(correlation)
            raise
        if self._writer.submit(record, written):
            return True
        self._pending.discard(correlation)
        return False

    async def call(
        self, user: str, op: str, body: object, app_version: str, *, anonymous: bool = False
    ) -> Reply | None:
        """A request of the gateway itself. Returns None if there is no reply."""
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        def on_reply(reply: Reply | None) -> None:
            if not answer.done():
                answer.set_result(reply)

        command = Command(op, msgspec.Raw(msgspec.json.encode(body)))
        if not self.request(user, command, op, app_version, on_reply, anonymous=anonymous):
            return None
        return await answer

    def replied(self, correlation: str, reply: Reply) -> None:
        self._pending.resolve(correlation, reply)

    def expire(self) -> None:
        """Ends the requests whose time is up."""
        self._pending.expire(self._clock.monotonic())

    def expire_all(self) -> None:
        """Ends all requests: their replies would go to the next process."""
        self._pending.expire(float("inf"))

    def _record(
        self,
        user: str,
        command: Command,
        command_id: str,
        app_version: str,
        *,
        correlation: str | None = None,
        anonymous: bool = False,
    ) -> Record:
        routes = self._coordination.routes
        headers = CommandHeaders(
            id=command_id,
            gateway=self._gateway,
            app_version=routes.version_of(app_version) or routes.default,
            at_ms=self._clock.wall_ms(),
            reply=None if correlation is None else self._coordination.slot,
            correlation=correlation,
            anonymous=anonymous,
        )
        topic = routes.topic_of(app_version) or routes.topics[routes.default]
        return Record(topic, user.encode(), encode_value(command), headers.to_headers())
