"""All home partitions of chat over a log of plain lists, without broker or clock. Tests choose each step."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kafkaesque.chat.global_tables import NameList
from kafkaesque.chat.partition import BackendCounts, HomePartition, RecordProcessor
from kafkaesque.chat.rules.decide_command import DecisionContext
from kafkaesque.chat.rules.facts import decode_entry
from kafkaesque.chat.rules.fold import fold_all
from kafkaesque.chat.rules.snapshot import decode_snapshot, encode_snapshot
from kafkaesque.chat.rules.state import ChatPartitionState
from kafkaesque.client.ports import Received, Record
from kafkaesque.events.chat import CHAT_DIRECTORY, CHAT_EVENTS, CHAT_HANDOVER, CHAT_JOURNAL
from kafkaesque.events.gateway import INBOX, REPLIES, ROOMS, CommandHeaders
from kafkaesque.model.ids import Offset, PartitionIndex, TimestampMs

COMMANDS = "gw.cmd.v1"
NOW_MS = 1_790_000_000_000


class Names:
    """A directory that never lags."""

    def __init__(self) -> None:
        self.lists = {"account": NameList(), "room": NameList()}

    def names(self, kind: str, pattern: str, after: str, limit: int) -> list[str]:
        return self.lists[kind].page(pattern, after, limit)


@dataclass
class World:
    partitions: int = 3
    online: set[str] = field(default_factory=set)
    now_ms: int = NOW_MS

    def __post_init__(self) -> None:
        self.log: dict[tuple[str, int], list[Received]] = {}
        self.done: dict[tuple[str, int], int] = {}
        self.snapshots: dict[int, dict[bytes, bytes | None]] = {}
        self.directory = Names()
        self.counts = BackendCounts()
        self.processor = RecordProcessor(self.directory, 64, self.counts)
        self.homes = {number: self._empty(number) for number in range(self.partitions)}
        self._next_id = 0

    @staticmethod
    def _empty(number: int) -> HomePartition:
        return HomePartition(PartitionIndex(number), ChatPartitionState(), Offset(0))

    # -- the log ----------------------------------------------------------------------------------

    def home_of(self, name: str) -> int:
        return zlib.crc32(name.encode()) % self.partitions

    def append(self, record: Record) -> None:
        if record.partition is not None and record.topic != REPLIES.name:
            number = int(record.partition)
        else:
            number = self.home_of((record.key or b"").decode())
        records = self.log.setdefault((record.topic, number), [])
        records.append(
            Received(
                record.topic,
                PartitionIndex(number),
                Offset(len(records)),
                record.key,
                record.value,
                record.headers,
                TimestampMs(self.now_ms),
            )
        )
        if record.topic == CHAT_DIRECTORY.name:
            kind, _, name = (record.key or b"").decode().partition("/")
            names = self.directory.lists[kind]
            names.remove(name) if record.value is None else names.put(name)

    def records(self, topic: str) -> list[Received]:
        return [
            one for (name, _), all_ in sorted(self.log.items()) if name == topic for one in all_
        ]

    # -- clients ----------------------------------------------------------------------------------

    def send(self, user: str, op: str, command_id: str | None = None, **body: Any) -> str:
        self._next_id += 1
        command_id = command_id or f"c{self._next_id}"
        self.send_bytes(user, msgspec.json.encode({"op": op, "body": body}), command_id)
        return command_id

    def send_bytes(self, user: str, value: bytes, command_id: str, **more: Any) -> None:
        headers = CommandHeaders(command_id, "g1", "v1", TimestampMs(self.now_ms), **more)
        self.append(Record(COMMANDS, user.encode(), value, headers.to_headers()))

    def ask(self, user: str, op: str, *, anonymous: bool = False, **body: Any) -> dict[str, Any]:
        """Processes everything and returns the reply."""
        self._next_id += 1
        correlation = f"q{self._next_id}"
        value = msgspec.json.encode({"op": op, "body": body})
        self.send_bytes(
            user, value, correlation, reply=PartitionIndex(0), correlation=correlation,
            anonymous=anonymous,
        )  # fmt: skip
        self.settle()
        for record in self.records(REPLIES.name):
            if dict(record.headers)["correlation"] == correlation.encode():
                answer: dict[str, Any] = msgspec.json.decode(record.value or b"")
                return answer
        raise AssertionError(f"{op} was not answered")

    def open(self, *users: str) -> None:
        for user in users:
            self.send(user, "account.open")
        self.settle()

    # -- back ends --------------------------------------------------------------------------------

    def waiting(self) -> list[tuple[str, int]]:
        inputs = (COMMANDS, CHAT_HANDOVER.name)
        return sorted(
            place
            for place, records in self.log.items()
            if place[0] in inputs and self.done.get(place, 0) < len(records)
        )

    def step(self, place: tuple[str, int]) -> None:
        """Processes one record of one input in its own transaction."""
        record = self.log[place][self.done.get(place, 0)]
        context = DecisionContext(self.now_ms, self.online.__contains__)
        home = self.homes[place[1]]
        processed = self.processor.process(home, record, context)
        if processed.journal is not None:
            self.append(processed.journal)
            home.journal_next = Offset(len(self.log[CHAT_JOURNAL.name, place[1]]))
        for other in processed.others:
            self.append(other)
        self.done[place] = self.done.get(place, 0) + 1

    def settle(self) -> None:
        while waiting := self.waiting():
            self.step(waiting[0])

    def snapshot(self, number: int) -> None:
        home = self.homes[number]
        self.snapshots.setdefault(number, {}).update(encode_snapshot(home.state, home.journal_next))
        home.state.dirty.clear()

    def rebuilt(self, number: int) -> HomePartition:
        """The partition as a successor would restore it."""
        state, journal_next = decode_snapshot(self.snapshots.get(number, {}).items())
        journal = self.log.get((CHAT_JOURNAL.name, number), [])
        for record in journal[journal_next:]:
            fold_all(state, decode_entry(record.value or b""))
        return HomePartition(PartitionIndex(number), state, Offset(len(journal)))

    def crash(self, number: int) -> None:
        self.homes[number] = self.rebuilt(number)

    # -- outcomes ---------------------------------------------------------------------------------

    def inbox(self, user: str, kind: str | None = None) -> list[dict[str, Any]]:
        events = [
            msgspec.json.decode(record.value or b"")
            for record in self.records(INBOX.name)
            if record.key == user.encode()
        ]
        return [event for event in events if kind in (None, event["type"])]

    def bodies(self, user: str, kind: str) -> list[dict[str, Any]]:
        return [event["body"] for event in self.inbox(user, kind)]

    def result(self, user: str, command_id: str) -> dict[str, Any]:
        """The one result of a command."""
        found = [event["body"] for event in self.inbox(user) if event.get("re") == command_id]
        assert len(found) == 1, found
        body: dict[str, Any] = found[0]
        return body

    def room_events(self, room: str) -> list[dict[str, Any]]:
        return [
            msgspec.json.decode(record.value or b"")
            for record in self.records(ROOMS.name)
            if record.key == room.encode()
        ]

    def stages(self) -> list[tuple[str, str]]:
        events = [msgspec.json.decode(one.value or b"") for one in self.records(CHAT_EVENTS.name)]
        return [(event["kind"], event["body"]["message_id"]) for event in events]
