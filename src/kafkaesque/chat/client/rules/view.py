"""The view model of the terminal client: conversations, messages, unread counts, typing. Pure.

Events and replies go in; commands that the client should send come out. An event may arrive twice (once
in the history, once from the inbox); message ids identify duplicates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kafkaesque.chat.rules.names import message_id

LINES_MAX = 500
NOTICES_MAX = 50
TYPING_MS = 6000
FRESH_MS = 60_000
"""Older notifications, read again after a reconnect, are not shown."""
_STAGES = {"sending": 0, "queued": 1, "delivered": 2, "read": 3, "failed": 4}


@dataclass(slots=True)
class Line:
    """One message of a thread."""

    message_id: str
    sender: str
    text: str
    sent_ms: int
    stage: str = "queued"
    note: str = ""

    def advance(self, stage: str) -> None:
        if _STAGES[stage] > _STAGES[self.stage]:
            self.stage = stage


@dataclass(slots=True)
class Thread:
    """One conversation, or one room (`#name`)."""

    name: str
    lines: dict[str, Line] = field(default_factory=dict)
    unread: int = 0
    last_ms: int = 0
    typing_ms: int = 0
    loaded: bool = False
    members: tuple[str, ...] = ()

    @property
    def is_room(self) -> bool:
        return self.name.startswith("#")

    def put(self, line: Line) -> bool:
        """Adds a message; returns False if it was already there."""
        self.last_ms = max(self.last_ms, line.sent_ms)
        known = self.lines.get(line.message_id)
        if known is not None:
            known.advance(line.stage)
            return False
        self.lines[line.message_id] = line
        if len(self.lines) > LINES_MAX:
            del self.lines[next(iter(self.lines))]
        return True

    def is_typing(self, now_ms: int) -> bool:
        return now_ms - self.typing_ms < TYPING_MS


@dataclass(frozen=True, slots=True)
class OutgoingCommand:
    """A command that the client should send."""

    op: str
    body: dict[str, Any]


class ChatView:
    """All threads of `me`."""

    def __init__(self, me: str) -> None:
        self.me = me
        self.threads: dict[str, Thread] = {}
        self.current: str | None = None
        self.notices: list[str] = []
        self.ended: str | None = None
        """Why the session ended; None while it runs."""
        self._pending: dict[str, str] = {}
        """Message ids by command id, until the result arrives."""

    def notice(self, text: str) -> None:
        self.notices = [*self.notices, text][-NOTICES_MAX:]

    def thread(self, name: str) -> Thread:
        return self.threads.setdefault(name, Thread(name))

    @property
    def ordered(self) -> list[Thread]:
        """Threads, the most recent first."""
        return sorted(self.threads.values(), key=lambda one: (-one.last_ms, one.name))

    @property
    def unread(self) -> int:
        return sum(thread.unread for thread in self.threads.values())

    # -- user actions -----------------------------------------------------------------------------

    def choose(self, name: str) -> list[OutgoingCommand]:
        """Opens a thread and marks its messages as read."""
        self.current = name
        thread = self.thread(name)
        thread.unread = 0
        return self._read(thread)

    def step(self, by: int) -> list[OutgoingCommand]:
        """Opens the next or previous thread of the list."""
        names = [thread.name for thread in self.ordered]
        if not names:
            return []
        at = names.index(self.current) + by if self.current in names else 0
        return self.choose(names[at % len(names)])

    def sent(self, command_id: str, to: str, text: str, now_ms: int) -> None:
        """Shows a message that is being sent; the result updates its stage."""
        one_id = message_id(self.me, command_id)
        self._pending[command_id] = one_id
        self.thread(to).put(Line(one_id, self.me, text, now_ms, "sending"))

    def _read(self, thread: Thread) -> list[OutgoingCommand]:
        if thread.is_room:
            return []
        unread = [
            line
            for line in thread.lines.values()
            if line.sender != self.me and line.stage != "read"
        ]
        for line in unread:
            line.stage = "read"
        ids = [line.message_id for line in unread]
        return [OutgoingCommand("message.read", {"message_ids": ids})] if ids else []

    # -- events -----------------------------------------------------------------------------------

    def apply_event(
        self, kind: str, body: Mapping[str, Any], re: str | None, now_ms: int
    ) -> list[OutgoingCommand]:
        """Applies one event. Unknown kinds are ignored: they are meant for later clients."""
        match kind:
            case "message.new":
                return self._message(body)
            case "room.message":
                self._room_message(body)
            case "message.delivered" | "message.read" | "message.undeliverable":
                self._receipt(kind, body)
            case "typing":
                self.thread(body["from"]).typing_ms = body.get("at_ms", now_ms)
            case "result":
                self._result(body, re)
            case "room.joined" | "room.left":
                verb = "joined" if kind == "room.joined" else "left"
                self.notice(f"{body['user']} {verb} #{body['room']}")
            case "notification":
                # The message itself arrives as `message.new`; this alerts a user in another thread.
                if self.current != body["from"] and now_ms - body["sent_ms"] < FRESH_MS:
                    self.notice(f"{body['from']} wrote to you")
            case "account.deleted":
                self.ended = "this account was deleted"
        return []

    def _message(self, body: Mapping[str, Any]) -> list[OutgoingCommand]:
        thread = self.thread(body["from"])
        thread.typing_ms = 0
        line = Line(body["message_id"], body["from"], body["text"], body["sent_ms"], "delivered")
        if not thread.put(line):
            return []
        received = OutgoingCommand("message.received", {"message_ids": [line.message_id]})
        if self.current == thread.name:
            return [received, *self._read(thread)]
        thread.unread += 1
        return [received]

    def _room_message(self, body: Mapping[str, Any]) -> None:
        thread = self.thread(f"#{body['room']}")
        line = Line(body["message_id"], body["from"], body["text"], body["sent_ms"])
        if thread.put(line) and line.sender != self.me and self.current != thread.name:
            thread.unread += 1

    def _receipt(self, kind: str, body: Mapping[str, Any]) -> None:
        thread = self.threads.get(body.get("by") or body.get("to") or "")
        line = None if thread is None else thread.lines.get(body["message_id"])
        if kind == "message.undeliverable":
            self.notice(f"the account {body['to']} was deleted; your message was not delivered")
        if line is not None:
            line.advance("failed" if kind == "message.undeliverable" else kind.split(".")[1])

    def _result(self, body: Mapping[str, Any], re: str | None) -> None:
        one_id = self._pending.pop(re or "", None)
        line = None
        for thread in self.threads.values():
            line = line or thread.lines.get(one_id or "")
        if not body["ok"]:
            self.notice(body.get("message", body.get("code", "refused")))
        if line is not None:
            line.advance("queued" if body["ok"] else "failed")
            line.note = "" if body["ok"] else body.get("code", "")

    # -- replies ----------------------------------------------------------------------------------

    def load_conversations(self, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            thread = self.thread(row["with"])
            thread.unread = row["unread"] if thread.name != self.current else 0
            thread.last_ms = max(thread.last_ms, row["last_ms"])

    def load_history(self, body: Mapping[str, Any]) -> list[OutgoingCommand]:
        """Puts older messages before the present ones, and marks undelivered ones as received."""
        thread = self.thread(body["with"])
        thread.members = tuple(body.get("members", ()))
        known = thread.lines
        thread.lines = {}
        received = []
        for row in body["messages"]:
            line = Line(row["message_id"], row["from"], row["text"], row["sent_ms"], row["stage"])
            if line.sender != self.me and line.stage == "queued" and not thread.is_room:
                line.stage = "delivered"
                received.append(line.message_id)
            thread.put(line)
        for line in known.values():
            thread.put(line)
        thread.loaded = True
        commands = (
            [OutgoingCommand("message.received", {"message_ids": received})] if received else []
        )
        if self.current == thread.name:
            thread.unread = 0
            commands += self._read(thread)
        return commands
