"""One home partition of users and rooms: input records in, output records out.

Facts are folded into the state as soon as they are decided, so that the next command of a batch sees
them. If the batch cannot be written, the partition is discarded and restored from the log. The state is
therefore never older than the log, and newer only for the length of one transaction.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kafkaesque.chat.rules.answer_query import Directory, answer_query
from kafkaesque.chat.rules.commands import MalformedCommand, parse_command
from kafkaesque.chat.rules.decide_command import DecisionContext, decide_command, reject
from kafkaesque.chat.rules.decide_handover import decide_handover
from kafkaesque.chat.rules.facts import encode_entry
from kafkaesque.chat.rules.fold import fold_all
from kafkaesque.chat.rules.handovers import HandoverUnreadable, decode_handover, encode_handover
from kafkaesque.chat.rules.outputs import InboxEvent, Outputs, QueryReply, RoomEvent
from kafkaesque.chat.rules.state import ChatPartitionState
from kafkaesque.client.ports import Received, Record
from kafkaesque.events.chat import (
    CHAT_DIRECTORY,
    CHAT_EVENTS,
    CHAT_HANDOVER,
    CHAT_JOURNAL,
    stage_envelope,
)
from kafkaesque.events.envelope import encode
from kafkaesque.events.gateway import INBOX, REPLIES, ROOMS, encode_value, raw, reply_headers
from kafkaesque.events.gateway import Event as EventValue
from kafkaesque.events.gateway import Reply as ReplyValue
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import Offset, PartitionIndex

logger = logging.getLogger(__name__)
_directory_encoder = msgspec.json.Encoder()


@dataclass(slots=True)
class BackendCounts:
    """Counters since the back end started."""

    commands: int = 0
    asks: int = 0
    handovers: int = 0
    repeats: int = 0
    refused: int = 0
    poison: int = 0
    """Input records that are malformed, or on which a rule raised an exception."""
    messages: int = 0
    facts: int = 0
    events: int = 0
    ops: Counter[str] = field(default_factory=Counter)

    def add(self, outputs: Outputs) -> None:
        self.repeats += outputs.is_repeat
        self.facts += len(outputs.facts)
        self.events += len(outputs.inbox) + len(outputs.rooms)
        for event in outputs.inbox:
            self.messages += event.type == "message.new"
            self.refused += event.type == "result" and not event.body["ok"]
        self.refused += sum(reply.code is not None for reply in outputs.replies)


@dataclass(slots=True)
class HomePartition:
    """The state of one partition, and how much of its journal the state covers."""

    index: PartitionIndex
    state: ChatPartitionState
    journal_next: Offset
    """The journal offset after the last fact in `state`."""
    facts_since_snapshot: int = 0


@dataclass(frozen=True, slots=True)
class ProcessedRecord:
    """The records to write for one input record."""

    journal: Record | None
    """None if the state did not change."""
    others: tuple[Record, ...]


class RecordProcessor:
    """Applies the chat rules to input records: commands, queries and hand-overs."""

    def __init__(self, directory: Directory, reply_partitions: int, counts: BackendCounts) -> None:
        self._directory = directory
        self._reply_partitions = reply_partitions
        self._counts = counts

    def process(
        self, partition: HomePartition, record: Received, context: DecisionContext
    ) -> ProcessedRecord:
        """Decides one input record and folds the resulting facts into the partition's state."""
        try:
            outputs = self._decide(partition.state, record, context)
            others = self._other_records(outputs, context.now_ms)
        except InvariantBroken:
            raise
        except Exception as error:
            # One bad record must not stop the partition. The rules are pure, so nothing has changed
            # yet: the sender gets an internal-error result and processing continues.
            logger.exception("%s-%d@%d", record.topic, record.partition, record.offset)
            self._counts.poison += 1
            outputs = _reject_failed(record, error)
            others = self._other_records(outputs, context.now_ms)
        self._counts.add(outputs)
        fold_all(partition.state, outputs.facts)
        partition.facts_since_snapshot += len(outputs.facts)
        journal = _journal_record(outputs, record.key or b"", partition.index)
        return ProcessedRecord(journal, others)

    def _decide(
        self, state: ChatPartitionState, record: Received, context: DecisionContext
    ) -> Outputs:
        counts = self._counts
        if record.topic == CHAT_HANDOVER.name:
            counts.handovers += 1
            try:
                handover = decode_handover(record.value or b"")
            except HandoverUnreadable as error:
                counts.poison += 1
                logger.warning("%s-%d@%d: %s", record.topic, record.partition, record.offset, error)
                return Outputs()
            return decide_handover(handover, state, context)
        try:
            command = parse_command(
                record.key, record.value, dict(record.headers), record.timestamp_ms
            )
        except MalformedCommand as bad:
            counts.poison += 1
            return reject(bad)
        counts.ops[type(command.request).__name__] += 1
        if command.reply_to is not None:
            counts.asks += 1
            return answer_query(command, state, self._directory, context)
        counts.commands += 1
        return decide_command(command, state, context)

    def _other_records(self, outputs: Outputs, now_ms: int) -> tuple[Record, ...]:
        return tuple(_output_records(outputs, now_ms, self._reply_partitions))


def _reject_failed(record: Received, error: Exception) -> Outputs:
    try:
        command = parse_command(record.key, record.value, dict(record.headers), 0)
    except MalformedCommand as bad:
        return reject(bad)
    text = f"the command could not be carried out ({type(error).__name__})"
    return reject(
        MalformedCommand("internal-error", text, command.user, command.id, command.reply_to)
    )


def _journal_record(outputs: Outputs, key: bytes, partition: PartitionIndex) -> Record | None:
    if not outputs.facts:
        return None
    return Record(CHAT_JOURNAL.name, key, encode_entry(tuple(outputs.facts)), partition=partition)


def _output_records(outputs: Outputs, now_ms: int, reply_partitions: int) -> Iterator[Record]:
    """Everything but the journal. Raises MalformedEvent if a value is too large for a record."""
    for handover in outputs.handovers:
        yield Record(CHAT_HANDOVER.name, handover.to.encode(), encode_handover(handover))
    for event in outputs.inbox:
        yield _event_record(INBOX.name, event.user, event, now_ms)
    for room_event in outputs.rooms:
        yield _event_record(ROOMS.name, room_event.room, room_event, now_ms)
    for reply in outputs.replies:
        # A reply to a partition that does not exist would fail the batch on every retry.
        if reply.to.reply < reply_partitions:
            yield _reply_record(reply)
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


def _event_record(topic: str, key: str, event: InboxEvent | RoomEvent, now_ms: int) -> Record:
    re = event.re if isinstance(event, InboxEvent) else None
    value = EventValue(event.type, raw(event.body), re, now_ms)
    return Record(topic, key.encode(), encode_value(value))


def _reply_record(reply: QueryReply) -> Record:
    to = reply.to
    if reply.code is None:
        value = ReplyValue(True, raw(reply.body))
    else:
        value = ReplyValue(False, code=reply.code, message=reply.message)
    return Record(
        REPLIES.name,
        to.gateway.encode(),
        encode_value(value),
        reply_headers(to.correlation, to.gateway),
        PartitionIndex(to.reply),
    )
