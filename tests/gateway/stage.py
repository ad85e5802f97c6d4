"""A gateway and its environment in one process: a log, an echoing back end, clients.

`run` runs a story on the log that `tests.gateway.logs` selects.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvloop
from tests.gateway.logs import log_of_a_test

from kafkaesque.client.ports import Log, LogError, Received, Record, Subscription
from kafkaesque.edge.client import EdgeClient, Happening, SnapshotNeeded
from kafkaesque.edge.client_state import Credentials
from kafkaesque.events.gateway import (
    INBOX,
    REPLIES,
    ROOMS,
    CommandHeaders,
    Event,
    Reply,
    command_topic,
    decode_command,
    encode_value,
    raw,
    reply_headers,
)
from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.service.clock import SystemClock

CLOCK = SystemClock()
SECONDS_MAX = 110.0
"""The timeout of a story: shorter than pytest's, so that the story is cleaned up."""


class EchoBackEnd:
    """Answers everything and records the commands it received. Commands take effect once."""

    def __init__(self, log: Log, version: str = "v1") -> None:
        self._log = log
        self._version = version
        self._task: asyncio.Task[None] | None = None
        self._done: set[tuple[str, str]] = set()
        self.accounts: dict[str, str] = {}
        self.commands: list[tuple[str, CommandHeaders, str, Any]] = []
        self.silent = False

    async def __aenter__(self) -> EchoBackEnd:
        topics = [command_topic(self._version), INBOX, ROOMS, REPLIES]
        while True:
            try:
                await self._log.admin.ensure_topics(topics)
                for topic in topics:
                    await self._log.admin.spans(topic.name)
                break
            except LogError:
                # The log is slow to answer, or a Kafka broker does not have the new topics yet.
                await asyncio.sleep(0.1)
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task is not None
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        topic = command_topic(self._version).name
        reader = await self._log.open_reader(Subscription([topic], f"echo-{self._version}"))
        writer = await self._log.open_writer()
        try:
            while True:
                out: list[Record] = []
                for record in await reader.read(wait_s=0.1):
                    out += self._answer(record)
                if out:
                    await writer.send(out)
                    await reader.commit()
        finally:
            await asyncio.shield(reader.close())
            await asyncio.shield(writer.close())

    def _answer(self, record: Received) -> list[Record]:
        user = (record.key or b"").decode()
        headers = CommandHeaders.of(record.headers)
        command = decode_command(record.value or b"")
        body = msgspec.json.decode(command.body)
        self.commands.append((user, headers, command.op, body))
        if self.silent:
            return []
        if headers.correlation is not None:
            return [self._reply(headers, self._reply_to(user, command.op, body))]
        if (user, headers.id) in self._done:
            return []
        self._done.add((user, headers.id))
        return self._execute(user, headers, command.op, body)

    def _reply_to(self, user: str, op: str, body: Any) -> Reply:
        match op:
            case "account.create":
                if body["name"] in self.accounts:
                    return Reply(ok=False, code="name-taken", message="taken")
                self.accounts[body["name"]] = body["password_hash"]
                return Reply(ok=True, body=raw({}))
            case "account.credentials":
                found = self.accounts.get(body["name"])
                if found is None:
                    return Reply(ok=False, code="unknown-account", message="nobody")
                return Reply(ok=True, body=raw({"password_hash": found}))
            case "room.subscribe":
                if body["room"] == "closed":
                    return Reply(ok=False, code="forbidden", message="closed to you")
                return Reply(ok=True, body=raw({}))
            case "fail":
                return Reply(ok=False, code="no-such-thing", message="as asked")
        return Reply(ok=True, body=raw({"user": user, "said": body}))

    def _execute(self, user: str, headers: CommandHeaders, op: str, body: Any) -> list[Record]:
        if op == "room.post":
            event = Event("room.message", raw(body), None, CLOCK.wall_ms())
            return [Record(ROOMS.name, body["room"].encode(), encode_value(event))]
        result = Event("result", raw(body), headers.id, CLOCK.wall_ms())
        out = [Record(INBOX.name, user.encode(), encode_value(result))]
        if op == "message.send":
            event = Event("message.new", raw({**body, "from": user}), None, CLOCK.wall_ms())
            out.append(Record(INBOX.name, body["to"].encode(), encode_value(event)))
        return out

    def _reply(self, headers: CommandHeaders, reply: Reply) -> Record:
        return Record(
            REPLIES.name,
            headers.gateway.encode(),
            encode_value(reply),
            reply_headers(headers.correlation or "", headers.gateway),
            partition=headers.reply,
        )


class Stage:
    """The log, gateways, clients and back end of a story."""

    def __init__(self, log: Log, data: Path) -> None:
        self.log = log
        self.data = data
        self.gateways: list[Gateway] = []
        self.clients: list[EdgeClient] = []
        self.back_end: EchoBackEnd

    async def gateway(self, name: str = "gw-1", **settings: str) -> Gateway:
        values = {key.replace("_", "."): value for key, value in settings.items()}
        gateway = Gateway(
            name, self.log, gateway_config(values), self.data, CLOCK, cheap_passwords=True
        )
        self.gateways.append(gateway)
        await gateway.prepare()
        await gateway.listen("127.0.0.1", 0)
        return gateway

    def token(self, user: str, gateway: Gateway | None = None) -> str:
        tokens = (gateway or self.gateways[0]).tokens
        return tokens.issue(user, CLOCK.wall_ms())[0]

    def client(self, user: str, *addresses: str, **options: Any) -> EdgeClient:
        """A client that is not started yet."""
        credentials = options.pop("credentials", None) or Credentials(token=self.token(user))
        places = addresses or tuple(gateway.address for gateway in self.gateways)
        client = EdgeClient(places, credentials, **options)
        self.clients.append(client)
        return client

    async def connected(self, user: str, *addresses: str, **options: Any) -> EdgeClient:
        client = self.client(user, *addresses, **options)
        await client.start()
        return client


@asynccontextmanager
async def stage(log: Log) -> AsyncIterator[Stage]:
    with tempfile.TemporaryDirectory() as data:
        play = Stage(log, Path(data))
        async with EchoBackEnd(log) as play.back_end:
            try:
                yield play
            finally:
                for client in play.clients:
                    await client.close()
                for gateway in play.gateways:
                    await gateway.stop()


def run(story: Callable[[Stage], Awaitable[None]]) -> None:
    async def play() -> None:
        async with asyncio.timeout(SECONDS_MAX), log_of_a_test() as log, stage(log) as set_up:
            await story(set_up)

    # The event loop of real gateways, which reads from sockets in its own order.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())


async def take(client: EdgeClient, count: int) -> list[Happening]:
    """The next `count` events. None of them may request a snapshot."""
    found: list[Happening] = []
    async with asyncio.timeout(60):
        async for event in client.events():
            assert not isinstance(event, SnapshotNeeded), event
            found.append(event)
            if len(found) == count:
                break
    return found
