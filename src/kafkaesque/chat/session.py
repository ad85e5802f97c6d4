"""One person's session: events of an EdgeClient into a View, and what follows from them back.

Knows nothing of screens. `changed` is set whenever there is something new to show.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any

from kafkaesque.chat.rules.view import Say, View
from kafkaesque.edge.client import (
    ClientClosed,
    EdgeClient,
    Happening,
    RequestFailed,
    SnapshotNeeded,
)

TYPING_EVERY_S = 3.0
UNDELIVERED_PAGE = 200


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class ChatSession:
    """`start` after the client has, `stop` before it closes."""

    def __init__(self, client: EdgeClient) -> None:
        self.client = client
        self.view = View(client.user)
        self.changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._typed_s = 0.0

    async def start(self) -> None:
        await self.load()
        self._spawn(self._follow())

    async def stop(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def load(self) -> None:
        """What there is: conversations, what came while nobody was here, rooms. An account that only a
        token opens is made on the way."""
        try:
            listed = await self.client.ask("conversation.list", {"limit": 200})
        except RequestFailed as failed:
            if failed.code != "no-account":
                raise
            await self.client.send("account.open", {})
            return
        self.view.load_conversations(listed["conversations"])
        await self._take_undelivered()
        rooms = await self.client.ask("room.list", {"limit": 1})
        for room in rooms["mine"]:
            self.view.thread(f"#{room}")
            await self.client.subscribe(room)
        self.changed.set()

    async def _take_undelivered(self) -> None:
        """They are received by being shown, so that the next page has others."""
        while True:
            page = await self.client.ask("message.undelivered", {"limit": UNDELIVERED_PAGE})
            counted = {name: thread.unread for name, thread in self.view.threads.items()}
            says: list[Say] = []
            for message in page["messages"]:
                says += self.view.take("message.new", message, None, now_ms())
            for name, unread in counted.items():
                # The list has counted them already.
                if name != self.view.current:
                    self.view.thread(name).unread = unread
            ids = [one for say in says for one in say.body["message_ids"]]
            if ids:
                await self.client.send("message.received", {"message_ids": ids})
            if not page["more"] or not ids:
                return

    # -- what the person does ---------------------------------------------------------------------

    async def choose(self, name: str) -> None:
        self.say(self.view.choose(name))
        self.changed.set()
        if not self.view.thread(name).loaded:
            try:
                history = await self.client.ask(
                    "conversation.history", {"with": name, "limit": 100}
                )
                self.say(self.view.load_history(history))
            except RequestFailed as failed:
                self.view.notice(str(failed))
            self.changed.set()

    async def write(self, to: str, text: str) -> None:
        """Shown at once, and sent for as long as it takes."""
        command_id = secrets.token_hex(8)
        self.view.sent(command_id, to, text, now_ms())
        self.changed.set()
        if to.startswith("#"):
            await self._send(Say("room.post", {"room": to[1:], "text": text}), command_id)
        else:
            await self._send(Say("message.send", {"to": to, "text": text}), command_id)

    async def room(self, op: str, room: str) -> None:
        """create, join or leave; the result is waited for, because SUB asks for membership."""
        name = room.removeprefix("#")
        await self.client.send(f"room.{op}", {"room": name})
        if op == "leave":
            self.view.threads.pop(f"#{name}", None)
            await self.client.unsubscribe(name)
            return
        await self._subscribe(name)
        await self.choose(f"#{name}")

    async def _subscribe(self, room: str) -> None:
        for wait_s in (0.05, 0.2, 0.5, 1.0, 2.0, 4.0):
            try:
                await self.client.subscribe(room)
                return
            except RequestFailed as failed:
                if failed.code != "not-a-member":
                    raise
            await asyncio.sleep(wait_s)
        raise RequestFailed("not-a-member", f"#{room} did not let us in")

    def typing(self) -> None:
        """At most every few seconds, to whom is looked at."""
        to = self.view.current
        if to is None or to.startswith("#") or time.monotonic() - self._typed_s < TYPING_EVERY_S:
            return
        self._typed_s = time.monotonic()
        self.say([Say("typing", {"to": to})])

    # -- what is said -----------------------------------------------------------------------------

    def say(self, says: Sequence[Say]) -> None:
        for say in says:
            self._spawn(self._send(say))

    async def _send(self, say: Say, command_id: str | None = None) -> None:
        try:
            await self.client.send(say.op, say.body, id=command_id)
        except RequestFailed as failed:
            self.view.notice(str(failed))
            self.changed.set()
        except ClientClosed as closed:
            self.view.ended = str(closed)
            self.changed.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _follow(self) -> None:
        async for event in self.client.events():
            if isinstance(event, Happening):
                self.say(self.view.take(event.type, event.body, event.re, now_ms()))
            elif isinstance(event, SnapshotNeeded):
                self.view.notice("something was missed: loading it anew")
                await self.load()
            self.changed.set()
        self.view.ended = self.view.ended or "the gateway closed the session"
        self.changed.set()
