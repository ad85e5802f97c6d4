"""The load of the chat runs, as a program: many clients that exchange messages in pairs.

    python -m kafkaesque.lab.faults.runs.chat_load '{"gateways": [...], "clients": 1000, ...}'

Clients 2k and 2k+1 share a conversation; each numbers its messages. The program prints `ready` once all
are connected and have an account. At end of standard input it stops sending, waits for messages in flight,
and prints one JSON object. Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
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
from kafkaesque.service.child_process import print_ready

_LIFE_S: Final = 24 * 3600
_CONNECTING: Final = 50
"""Connections opened at a time: connection storms are not the subject of these runs."""
_RECEIPTS_EVERY_S: Final = 5.0
_DRAIN_S: Final = 90.0
_SEND_COMMANDS: Final = {"v2": "say"}
"""The name of `message.send` in versions that call it something else."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The number of clients and the messages they send."""

    gateways: tuple[str, ...]
    secret: str
    clients: int = 1000
    messages_per_s: float = 100.0
    seed: int = 1
    receipts: bool = True
    prefix: str = "c"
    versions: tuple[str, ...] = ("",)
    """Application versions, assigned to clients in turn; empty: the default of the routes."""


@dataclass(slots=True)
class Tally:
    """Counts and times of all clients."""

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
    """From the loss of a connection until it is resumed."""
    failures: list[str] = field(default_factory=list)
    deliveries: list[tuple[int, float]] = field(default_factory=list)
    """Per message: when it was sent (ns), and how long delivery took (ms)."""


class ChatClient:
    """One client, in a conversation with `peer`."""

    def __init__(self, settings: LoadSettings, number: int, tally: Tally) -> None:
        self.name = f"{settings.prefix}{number}"
        self.peer = f"{settings.prefix}{number ^ 1}"
        self._tally = tally
        token = jwt.encode(
            {"sub": self.name, "exp": int(time.time()) + _LIFE_S, "jti": self.name},
            settings.secret,
            algorithm="HS256",
        )
        # Pairs start at alternating gateways; after a disconnect a client takes any.
        gateways = [*settings.gateways]
        first = number // 2 % len(gateways)
        version = settings.versions[number % len(settings.versions)]
        self._send_command = _SEND_COMMANDS.get(version, "message.send")
        self.client = EdgeClient(
            gateways[first:] + gateways[:first],
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

    async def send(self) -> None:
        number, self._number = self._number, self._number + 1
        text = f"{number} {time.monotonic_ns()}"
        try:
            command_id = await self.client.send(
                self._send_command, {"to": self.peer, "text": text}, id=f"m{number}"
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

    async def send_receipts(self) -> None:
        ids, self._receipts = self._receipts, []
        if ids:
            with contextlib.suppress(RequestFailed, ClientClosed):
                await self.client.send("message.received", {"message_ids": ids})

    def missing(self, peer: ChatClient) -> int:
        """How many of this client's acknowledged messages `peer` has not received."""
        return len(self.acknowledged - peer.received)

    def results_missing(self) -> int:
        return len({f"{self.name}/{one}" for one in self._results} ^ self.acknowledged)


class Load:
    """All clients of a run."""

    def __init__(self, settings: LoadSettings) -> None:
        self._settings = settings
        self.tally = Tally()
        self.clients = [
            ChatClient(settings, number, self.tally) for number in range(settings.clients)
        ]
        self._background: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        await _limited((client.start() for client in self.clients), _CONNECTING)

    async def send_messages(self, stopping: asyncio.Event) -> None:
        """Send at the wanted rate until `stopping`; each client sends one message at a time."""
        rng = random.Random(self._settings.seed)
        sending: set[asyncio.Task[None]] = set()
        busy: set[str] = set()
        receipts_s = time.monotonic()
        next_s = time.monotonic()
        while not stopping.is_set():
            next_s += 1 / self._settings.messages_per_s
            await asyncio.sleep(max(0.0, next_s - time.monotonic()))
            client = rng.choice(self.clients)
            if client.name not in busy:
                busy.add(client.name)
                task = asyncio.create_task(self._send(client, busy))
                sending.add(task)
                task.add_done_callback(sending.discard)
            if self._settings.receipts and time.monotonic() - receipts_s > _RECEIPTS_EVERY_S:
                receipts_s = time.monotonic()
                self._spawn(self._send_receipts())
        await asyncio.gather(*sending)
        await asyncio.gather(*self._background)

    async def _send(self, client: ChatClient, busy: set[str]) -> None:
        try:
            await client.send()
        finally:
            busy.discard(client.name)

    async def _send_receipts(self) -> None:
        await _limited((client.send_receipts() for client in self.clients), 50)

    def _spawn(self, work: Any) -> None:
        self._background = [task for task in self._background if not task.done()]
        self._background.append(asyncio.create_task(work))

    async def drain(self) -> None:
        """Wait until every acknowledged message has arrived, or until the timeout."""
        deadline_s = time.monotonic() + _DRAIN_S
        pairs = [(one, self.clients[at ^ 1]) for at, one in enumerate(self.clients)]
        while time.monotonic() < deadline_s:
            if not any(one.missing(peer) or one.results_missing() for one, peer in pairs):
                break
            await asyncio.sleep(0.1)
        self.tally.lost = sum(one.missing(peer) for one, peer in pairs)
        self.tally.results_missing = sum(one.results_missing() for one, _ in pairs)

    async def stop(self) -> None:
        await _limited((client.stop() for client in self.clients), 100)


async def _limited(work: Iterable[Awaitable[None]], width: int) -> None:
    """Run at most `width` awaitables at a time."""
    slots = asyncio.Semaphore(width)

    async def one(each: Awaitable[None]) -> None:
        async with slots:
            await each

    await asyncio.gather(*(one(each) for each in work))


async def _main(settings: LoadSettings) -> None:
    stopping = asyncio.Event()
    load = Load(settings)
    await load.start()
    print_ready({"clients": settings.clients})
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stopping.set)
    await load.send_messages(stopping)
    await load.drain()
    await load.stop()
    load.tally.failures = sorted(set(load.tally.failures))[:20]
    click.echo(json.dumps(asdict(load.tally)))
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(msgspec.json.decode(sys.argv[1], type=LoadSettings)))
