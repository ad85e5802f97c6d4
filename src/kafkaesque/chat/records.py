"""Outputs of a decision to records of the log. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kafkaesque.chat.rules.facts import encode_entry
from kafkaesque.chat.rules.handovers import encode_handover
from kafkaesque.chat.rules.outputs import InboxEvent, Outputs, Reply, RoomEvent
from kafkaesque.client.ports import Record
from kafkaesque.events.chat import (
    CHAT_DIRECTORY,
    CHAT_EVENTS,
    CHAT_HANDOVER,
    CHAT_JOURNAL,
    stage_envelope,
)
from kafkaesque.events.envelope import encode
from kafkaesque.events.gateway import INBOX, REPLIES, ROOMS, Event, encode_value, raw, reply_headers
from kafkaesque.events.gateway import Reply as WrittenReply
from kafkaesque.model.ids import PartitionIndex

_directory_encoder = msgspec.json.Encoder()


def journal_record(outputs: Outputs, key: bytes, partition: PartitionIndex) -> Record | None:
    """None if nothing changed."""
    if not outputs.facts:
        return None
    return Record(CHAT_JOURNAL.name, key, encode_entry(tuple(outputs.facts)), partition=partition)


def other_records(outputs: Outputs, now_ms: int, reply_partitions: int) -> Iterator[Record]:
    """Everything but the journal. MalformedEvent if something is too large for a record."""
    for handover in outputs.handovers:
        yield Record(CHAT_HANDOVER.name, handover.to.encode(), encode_handover(handover))
    for event in outputs.inbox:
        yield _event(INBOX.name, event.user, event, now_ms)
    for room_event in outputs.rooms:
        yield _event(ROOMS.name, room_event.room, room_event, now_ms)
    for reply in outputs.replies:
        # A slot that does not exist would fail the whole batch, again and again.
        if reply.asked.reply < reply_partitions:
            yield _reply(reply)
    for entry in outputs.directory:
        value = None if entry.at_ms is None else {"name": entry.name, "at_ms": entry.at_ms}
        yield Record(
            CHAT_DIRECTORY.name,
            f"{entry.kind}/{entry.name}".encode(),
            None if value is None else _directory_encoder.encode(value),
        )
    for stage in outputs.stages:
        yield Record(
            CHAT_EVENTS.name, stage.conversation_id.encode(), encode(stage_envelope(stage))
        )


def _event(topic: str, key: str, event: InboxEvent | RoomEvent, now_ms: int) -> Record:
    re = event.re if isinstance(event, InboxEvent) else None
    written = Event(event.type, raw(event.body), re, now_ms)
    return Record(topic, key.encode(), encode_value(written))


def _reply(reply: Reply) -> Record:
    asked = reply.asked
    if reply.code is None:
        written = WrittenReply(True, raw(reply.body))
    else:
        written = WrittenReply(False, code=reply.code, message=reply.message)
    return Record(
        REPLIES.name,
        asked.gateway.encode(),
        encode_value(written),
        reply_headers(asked.correlation, asked.gateway),
        PartitionIndex(asked.reply),
    )
