"""A chat session of one user: applies the events of an EdgeClient to a ChatView, and sends commands.

Independent of the screen. `changed` is set whenever there is something new to show.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from typing import Any

from kafkaesque.chat.client.rules.view import ChatView, OutgoingCommand
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
    """Start it after the client has started, and stop it before the client closes."""

    def __init__(self, client: EdgeClient) -> None:
        self.client = client
        self.view = ChatView(client.user)
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
        """Loads conversations, undelivered messages and rooms. Creates the account if a user with a token
        has none yet."""
        try:
            listed = await self.client.ask("conversation.list", {"limit": 200})
        except RequestFailed as failed:
            if failed.code != "no-account":
                raise
            await self.client.send("account.open", {})
            return
        self.view.load_conversations(listed["conversations"])
        await self._receive_undelivered()
        rooms = await self.client.ask("room.list", {"limit": 1})
        for room in rooms["mine"]:
            self.view.thread(f"#{room}")
            await self.client.subscribe(room)
        self.changed.set()

    async def _receive_undelivered(self) -> None:
        """Marks each page as received, so that the next query returns other messages."""
        while True:
            page = await self.client.ask("message.undelivered", {"limit": UNDELIVERED_PAGE})
            counted = {name: thread.unread for name, thread in self.view.threads.items()}
            commands: list[OutgoingCommand] = []
            for message in page["messages"]:
                commands += self.view.apply_event("message.new", message, None, now_ms())
            for name, unread in counted.items():
                # conversation.list has counted them already.
                if name != self.view.current:
                    self.view.thread(name).unread = unread
            ids = [one for command in commands for one in command.body["message_ids"]]
            if ids:
                await self.client.send("message.received", {"message_ids": ids})
            if not page["more"] or not ids:
                return

    # -- user actions -----------------------------------------------------------------------------

    async def choose(self, name: str) -> None:
        self.send_commands(self.view.choose(name))
        self.changed.set()
        if not self.view.thread(name).loaded:
            try:
                history = await self.client.ask(
                    "conversation.history", {"with": name, "limit": 100}
                )
                self.send_commands(self.view.load_history(history))
            except RequestFailed as failed:
                self.view.notice(str(failed))
            self.changed.set()

    async def write(self, to: str, text: str) -> None:
        """Shows the message at once; sending may take as long as the connection is down."""
        command_id = secrets.token_hex(8)
        self.view.sent(command_id, to, text, now_ms())
        self.changed.set()
        if to.startswith("#"):
            await self._send(
                OutgoingCommand("room.post", {"room": to[1:], "text": text}), command_id
            )
        else:
            await self._send(OutgoingCommand("message.send", {"to": to, "text": text}), command_id)

    async def room(self, op: str, room: str) -> None:
        """`op` is create, join or leave. Entering waits for membership, which SUB requires."""
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
        raise RequestFailed("not-a-member", f"joining #{room} did not complete in time")

    def typing(self) -> None:
        """Sends a typing notice to the open conversation, at most every few seconds."""
        to = self.view.current
        if to is None or to.startswith("#") or time.monotonic() - self._typed_s < TYPING_EVERY_S:
            return
        self._typed_s = time.monotonic()
        self.send_commands([OutgoingCommand("typing", {"to": to})])

    # -- connection -------------------------------------------------------------------------------

    def send_commands(self, commands: Sequence[OutgoingCommand]) -> None:
        for command in commands:
            self._spawn(self._send(command))

    async def _send(self, command: OutgoingCommand, command_id: str | None = None) -> None:
        try:
            await self.client.send(command.op, command.body, id=command_id)
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
                self.send_commands(
                    self.view.apply_event(event.type, event.body, event.re, now_ms())
                )
            elif isinstance(event, SnapshotNeeded):
                self.view.notice("some events were missed; reloading")
                await self.load()
            self.changed.set()
        self.view.ended = self.view.ended or "the gateway closed the session"
        self.changed.set()
