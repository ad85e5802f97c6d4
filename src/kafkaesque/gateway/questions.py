"""Commands and questions into the log, answers out of it."""

from __future__ import annotations

import asyncio

import msgspec

from kafkaesque.client.ports import LogError, Record
from kafkaesque.events.gateway import Command, CommandHeaders, Reply, encode_value
from kafkaesque.gateway.asks import Answered
from kafkaesque.gateway.commands import Written
from kafkaesque.gateway.services import Services


class Questions:
    """Writes what a client (or the gateway on its behalf) has to say to the back ends."""

    def __init__(self, services: Services) -> None:
        self._of = services

    def send(
        self, user: str, command: Command, command_id: str, app_version: str, written: Written
    ) -> bool:
        """False if too much waits already. MalformedEvent if it is too large for the log."""
        record = self._record(user, command, command_id, app_version)
        self._of.counters.commands += 1
        return self._of.writer.submit(record, written)

    def ask(
        self,
        user: str,
        command: Command,
        command_id: str,
        app_version: str,
        answered: Answered,
        *,
        anonymous: bool = False,
    ) -> bool:
        """`answered` is told None if no answer comes in time, or the question could not be written."""
        asks = self._of.asks
        correlation = asks.begin(answered, self._of.clock.monotonic())
        if correlation is None:
            return False
        self._of.counters.asks += 1

        def written(failure: LogError | None) -> None:
            if failure is not None:
                asks.forget(correlation)
                answered(None)

        record = self._record(
            user, command, command_id, app_version, correlation=correlation, anonymous=anonymous
        )
        if self._of.writer.submit(record, written):
            return True
        asks.forget(correlation)
        return False

    async def inquire(
        self, user: str, op: str, body: object, app_version: str, *, anonymous: bool = False
    ) -> Reply | None:
        """A question of the gateway's own; None if it is not answered."""
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()

        def answered(reply: Reply | None) -> None:
            if not answer.done():
                answer.set_result(reply)

        command = Command(op, msgspec.Raw(msgspec.json.encode(body)))
        if not self.ask(user, command, op, app_version, answered, anonymous=anonymous):
            return None
        return await answer

    def topic_of(self, app_version: str) -> str | None:
        return self._of.peers.routes.topic_of(app_version)

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
        routes = self._of.peers.routes
        headers = CommandHeaders(
            id=command_id,
            gateway=self._of.name,
            app_version=routes.version_of(app_version) or routes.default,
            at_ms=self._of.clock.wall_ms(),
            reply=None if correlation is None else self._of.peers.slot,
            correlation=correlation,
            anonymous=anonymous,
        )
        topic = routes.topic_of(app_version) or routes.topics[routes.default]
        return Record(topic, user.encode(), encode_value(command), headers.to_headers())
