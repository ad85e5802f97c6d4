"""The load of the chat runs, in a process of its own: many clients that talk in pairs.

    python -m kafkaesque.lab.faults.runs.chat_load '{"gateways": [...], "clients": 1000, ...}'

Client 2k and client 2k+1 are one conversation, each with a number of its own that grows. Says `ready` once
all are connected and have an account; on end of standard input it stops sending, waits for what is under
way, and prints one JSON object. Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Awaitable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import click
import jwt
import msgspec

from kafkaesque.edge.client import (
    ClientClosed,
    EdgeClient,
    Happening,
    RequestFailed,
    SnapshotNeeded,
)
from kafkaesque.edge.client_state import Credentials
from kafkaesque.lab.faults.chance import seeded

_LIFE_S: Final = 24 * 3600
_CONNECTING: Final = 50
"""Connections begun at once; a storm is another run's matter."""
_RECEIPTS_EVERY_S: Final = 5.0
_DRAIN_S: Final = 90.0
_SAYING: Final = {"v2": "say"}
"""What a version calls `message.send`."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """What the clients do."""

    gateways: tuple[str, ...]
    secret: str
    clients: int = 1000
    messages_per_s: float = 100.0
    seed: int = 1
    receipts: bool = True
    prefix: str = "c"
    versions: tuple[str, ...] = ("",)
    """Of the application, dealt out in turn; empty is whatever the routes call the default."""


@dataclass(slots=True)
class Tally:
    """What came of it."""

    acknowledged: int = 0
    received: int = 0
    lost: int = 0
    twice: int = 0
    reordered: int = 0
    results_missing: int = 0
    results_twice: int = 0
    refused: int = 0
    disconnects: int = 0
    connects: int = 0
    resumed: int = 0
    replayed: int = 0
    repeated: int = 0
    snapshots_needed: int = 0
    resume_ms: list[float] = field(default_factory=list)
    """From the loss of a connection until events flow again."""
    failures: list[str] = field(default_factory=list)
    deliveries: list[tuple[int, float]] = field(default_factory=list)
    """When each was sent (ns), and how long it took (ms)."""


class Talker:
    """One client. `peer` is whom it talks to."""

    def __init__(self, settings: LoadSettings, number: int, tally: Tally) -> None:
        self.name = f"{settings.prefix}{number}"
        self.peer = f"{settings.prefix}{number ^ 1}"
        self._tally = tally
        token = jwt.encode(
            {"sub": self.name, "exp": int(time.time()) + _LIFE_S, "jti": self.name},
            settings.secret,
            algorithm="HS256",
        )
        # Every other client begins at every other gateway; after that it goes where it can.
        gateways = [*settings.gateways]
        turn = number // 2 % len(gateways)
        version = settings.versions[number % len(settings.versions)]
        self._saying = _SAYING.get(version, "message.send")
        self.client = EdgeClient(
            gateways[turn:] + gateways[:turn],
            Credentials(token=token),
            app_version=version,
            on_state=self._state_changed,
        )
        self._gone_s: float | None = None
        self.acknowledged: set[str] = set()
        self._results: set[str] = set()
        self.received: set[str] = set()
        self._highest = -1
        self._number = 0
        self._receipts: list[str] = []
        self._opened = asyncio.Event()
        self._settings = settings

    async def start(self) -> None:
        await self.client.start()
        self._following = asyncio.create_task(self._follow())
        await self.client.send("account.open", {}, id="open")
        await self._opened.wait()
        self._results.discard("open")

    async def stop(self) -> None:
        self._following.cancel()
        await asyncio.gather(self._following, return_exceptions=True)
        counts = self.client.counts
        for name in ("disconnects", "connects", "resumed", "replayed", "repeated"):
            setattr(self._tally, name, getattr(self._tally, name) + getattr(counts, name))
        await self.client.close()

    def _state_changed(self, state: str) -> None:
        if state == "disconnected" and self._gone_s is None:
            self._gone_s = time.monotonic()
        elif state == "connected" and self._gone_s is not None:
            self._tally.resume_ms.append((time.monotonic() - self._gone_s) * 1000)
            self._gone_s = None

    async def say(self) -> None:
        number, self._number = self._number, self._number + 1
        text = f"{number} {time.monotonic_ns()}"
        try:
            command_id = await self.client.send(
                self._saying, {"to": self.peer, "text": text}, id=f"m{number}"
            )
        except (RequestFailed, ClientClosed) as failed:
            self._tally.failures.append(str(failed))
            return
        self.acknowledged.add(f"{self.name}/{command_id}")
        self._tally.acknowledged += 1

    async def _follow(self) -> None:
        async for event in self.client.events():
            if isinstance(event, SnapshotNeeded):
                self._tally.snapshots_needed += 1
            elif isinstance(event, Happening):
                self._take(event)

    def _take(self, event: Happening) -> None:
        if event.type == "result":
            self._take_result(event)
        elif event.type == "message.new":
            self._take_message(event.body)

    def _take_result(self, event: Happening) -> None:
        tally = self._tally
        if event.re in self._results:
            tally.results_twice += 1
        self._results.add(event.re or "")
        if event.re == "open":
            self._opened.set()
        elif not event.body["ok"]:
            tally.refused += 1
            tally.failures.append(f"{event.body['code']}: {event.body['message']}")

    def _take_message(self, body: dict[str, Any]) -> None:
        tally, one_id = self._tally, body["message_id"]
        if one_id in self.received:
            tally.twice += 1
            return
        self.received.add(one_id)
        tally.received += 1
        number, sent_ns = (int(word) for word in body["text"].split())
        tally.reordered += number < self._highest
        self._highest = max(self._highest, number)
        tally.deliveries.append((sent_ns, (time.monotonic_ns() - sent_ns) / 1e6))
        self._receipts.append(one_id)

    async def give_receipts(self) -> None:
        ids, self._receipts = self._receipts, []
        if ids:
            with contextlib.suppress(RequestFailed, ClientClosed):
                await self.client.send("message.received", {"message_ids": ids})

    def missing(self, peer: Talker) -> int:
        """Of what this one had acknowledged."""
        return len(self.acknowledged - peer.received)

    def results_missing(self) -> int:
        return len({f"{self.name}/{one}" for one in self._results} ^ self.acknowledged)


class Load:
    """All clients of a run."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self.tally = Tally()
        self.talkers = [Talker(settings, number, self.tally) for number in range(settings.clients)]
        self._background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        turn = asyncio.Semaphore(_CONNECTING)

        async def one(talker: Talker) -> None:
            async with turn:
                await talker.start()

        await asyncio.gather(*(one(talker) for talker in self.talkers))

    async def talk(self, stopping: asyncio.Event) -> None:
        """Until told to stop: at the rate, each client one message at a time."""
        random = seeded(self._settings.seed)
        saying: set[asyncio.Task[None]] = set()
        busy: set[str] = set()
        receipts_s = time.monotonic()
        next_s = time.monotonic()
        while not stopping.is_set():
            next_s += 1 / self._settings.messages_per_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            talker = random.choice(self.talkers)
            if talker.name not in busy:
                busy.add(talker.name)
                task = asyncio.create_task(self._say(talker, busy))
                saying.add(task)
                task.add_done_callback(saying.discard)
            if self._settings.receipts and time.monotonic() - receipts_s > _RECEIPTS_EVERY_S:
                receipts_s = time.monotonic()
                self._spawn(self._give_receipts())
        await asyncio.gather(*saying)
        await asyncio.gather(*self._background)

    async def _say(self, talker: Talker, busy: set[str]) -> None:
        try:
            await talker.say()
        finally:
            busy.discard(talker.name)

    async def _give_receipts(self) -> None:
        await _in_turns((talker.give_receipts() for talker in self.talkers), 50)

    def _spawn(self, work: Any) -> None:
        self._background = [task for task in self._background if not task.done()]
        self._background.append(asyncio.create_task(work))

    async def drain(self) -> None:
        """Wait until all that was acknowledged is there, or for long enough."""
        deadline_s = time.monotonic() + _DRAIN_S
        pairs = [(one, self.talkers[at ^ 1]) for at, one in enumerate(self.talkers)]
        while time.monotonic() < deadline_s:
            if not any(one.missing(peer) or one.results_missing() for one, peer in pairs):
                break
            await asyncio.sleep(0.1)
        self.tally.lost = sum(one.missing(peer) for one, peer in pairs)
        self.tally.results_missing = sum(one.results_missing() for one, _ in pairs)

    async def stop(self) -> None:
        await _in_turns((talker.stop() for talker in self.talkers), 100)


async def _in_turns(work: Iterable[Awaitable[None]], width: int) -> None:
    turn = asyncio.Semaphore(width)

    async def one(each: Awaitable[None]) -> None:
        async with turn:
            await each

    await asyncio.gather(*(one(each) for each in work))


async def _main(settings: LoadSettings) -> None:
    stopping = asyncio.Event()
    load = Load(settings)
    await load.start()
    click.echo(f"ready clients={settings.clients}")
    sys.stdout.flush()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    await load.talk(stopping)
    await load.drain()
    await load.stop()
    load.tally.failures = sorted(set(load.tally.failures))[:20]
    click.echo(json.dumps(asdict(load.tally)))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(msgspec.json.decode(sys.argv[1], type=LoadSettings)))
