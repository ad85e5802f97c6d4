"""Back ends killed at seeded random points: clients must see the same as without kills.

The tests use the in-memory log, so that a kill can fall between any two calls to the log: before a record
is sent, inside a transaction, after its end, in a snapshot, while a partition is taken or released.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.chat.fake_gateway import FakeGateway
from tests.gateway.logs import memory_only
from tests.waiting import until

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.config import BackendConfig
from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.memory_reader import MemoryReader
from kafkaesque.client.ports import (
    Assignment,
    CommitPoint,
    LogAdmin,
    LogReader,
    LogWriter,
    Record,
    Subscription,
    WriterOptions,
)
from kafkaesque.model.ids import Offset, TopicPartition

CONFIG = BackendConfig(poll_wait_ms=5, snapshot_facts=9, batch_records_max=20)
USERS = ("ann", "bob", "cat", "dan")
KILLS = 25
pytestmark = [
    memory_only("a kill between any two calls to the log"),
    pytest.mark.timeout(400),
]


class Killed(BaseException):
    """kill -9: no clean-up code of the process runs."""


class MortalLog:
    """The log as one process sees it; the process is killed after `lives` calls."""

    def __init__(self, log: MemoryLog, lives: int) -> None:
        self._log = log
        self._lives = lives
        self.members: list[MemoryReader] = []

    def tick(self) -> None:
        self._lives -= 1
        if self._lives <= 0:
            raise Killed

    @property
    def is_dead(self) -> bool:
        return self._lives <= 0

    @property
    def admin(self) -> LogAdmin:
        return self._log.admin

    async def open_writer(self, options: WriterOptions = WriterOptions()) -> LogWriter:  # noqa: B008
        self.tick()
        return MortalWriter(self, await self._log.open_writer(options))

    async def open_reader(self, what: Subscription | Assignment) -> LogReader:
        reader = await self._log.open_reader(what)
        assert isinstance(reader, MemoryReader)
        if isinstance(what, Subscription):
            self.members.append(reader)
            self._log_close(reader)
        return reader

    def _log_close(self, reader: MemoryReader) -> None:
        """A killed member does not leave its group."""
        leave = reader.close

        async def close() -> None:
            if not self.is_dead:
                await leave()

        reader.close = close  # type: ignore[method-assign]

    async def close(self) -> None:
        await self._log.close()


class MortalWriter:
    """Counts every call; a kill may come before and after the commit of a transaction."""

    def __init__(self, log: MortalLog, writer: LogWriter) -> None:
        self._log = log
        self._writer = writer

    @property
    def transactional(self) -> bool:
        return self._writer.transactional

    async def send(self, records: Iterable[Record]) -> Sequence[Offset]:
        self._log.tick()
        return await self._writer.send(records)

    def transaction(self) -> AbstractAsyncContextManager[None]:
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        self._log.tick()
        async with self._writer.transaction():
            yield
            self._log.tick()
        self._log.tick()

    async def send_offsets(
        self, reader: LogReader, points: Mapping[TopicPartition, CommitPoint] | None = None
    ) -> None:
        self._log.tick()
        await self._writer.send_offsets(reader, points)

    async def close(self) -> None:
        if not self._log.is_dead:
            await self._writer.close()


class Supervisor:
    """Restarts a back end whenever it was killed, under the same or another name."""

    def __init__(self, log: MemoryLog, chance: random.Random) -> None:
        self._log = log
        self._chance = chance
        self.kills = 0
        self.ended = 0
        self.stopping = False

    async def keep(self, name: str) -> None:
        while not self.stopping:
            lives = self._chance.randrange(4, 60) if self.kills < KILLS else 1_000_000
            log = MortalLog(self._log, lives)
            shown = name if self._chance.random() < 0.5 else f"{name}-{self.kills}"
            backend = Backend(log, shown, CONFIG)
            running = asyncio.create_task(backend.run())
            while not running.done():
                if self.stopping:
                    backend.stop()
                await asyncio.wait([running], timeout=0.01)
            self.ended += backend.state.predecessors_ended
            if isinstance(running.exception(), Killed):
                self.kills += 1
                await backend.tables.stop()
                for member in log.members:
                    member.expel()
            else:
                running.result()


@pytest.mark.parametrize("seed", range(3))
def test_back_ends_killed_between_any_two_calls_lose_duplicate_and_reorder_nothing(
    seed: int,
) -> None:
    async def story() -> None:
        log = MemoryLog()
        chance = random.Random(seed)
        supervisor = Supervisor(log, chance)
        first = Backend(log, "first", CONFIG)
        task = asyncio.create_task(first.run())
        await until(lambda: first.state.ready)
        first.stop()
        await task
        clients = FakeGateway(log)
        await clients.open()
        keeping = [asyncio.create_task(supervisor.keep(name)) for name in ("b1", "b2")]
        await clients.open_accounts(*USERS)
        sent = await talk(clients, supervisor, chance)
        for sender, _, command_id in sent:
            await clients.result(sender, command_id)
        supervisor.stopping = True
        await asyncio.gather(*keeping)
        assert supervisor.kills >= KILLS
        judge(clients, sent)
        await clients.close()

    asyncio.run(story())


async def talk(
    clients: FakeGateway, supervisor: Supervisor, chance: random.Random
) -> list[tuple[str, str, str]]:
    """Sends commands, some of them twice, until all kills have happened."""
    sent: list[tuple[str, str, str]] = []
    while supervisor.kills < KILLS or len(sent) < 100:
        sender, to = chance.sample(USERS, 2)
        command_id = await clients.send(sender, "message.send", to=to, text=f"{len(sent)}")
        sent.append((sender, to, command_id))
        if chance.random() < 0.2:
            one = chance.choice(sent)
            await clients.send(one[0], "message.send", one[2], to=one[1], text="repeated")
        if chance.random() < 0.2:
            ids = [body["message_id"] for body in clients.bodies(to, "message.new")][-50:]
            await clients.send(to, "message.received", message_ids=ids)
        await clients.until(lambda: True)
        for record in await clients.reader.read(1000, 0.02):
            clients._take(record)
    return sent


def judge(clients: FakeGateway, sent: list[tuple[str, str, str]]) -> None:
    order = {f"{sender}/{command_id}": at for at, (sender, _, command_id) in enumerate(sent)}
    for sender, to, command_id in sent:
        results = clients.results(sender, command_id)
        assert [body["ok"] for body in results] == [True]
        ids = [body["message_id"] for body in clients.bodies(to, "message.new")]
        assert ids.count(f"{sender}/{command_id}") == 1
    for user in USERS:
        by_sender: dict[str, list[int]] = {}
        for body in clients.bodies(user, "message.new"):
            by_sender.setdefault(body["from"], []).append(order[body["message_id"]])
        assert all(places == sorted(places) for places in by_sender.values())
    delivered: list[Any] = [b for u in USERS for b in clients.bodies(u, "message.delivered")]
    ids = [body["message_id"] for body in delivered]
    assert len(ids) == len(set(ids))
