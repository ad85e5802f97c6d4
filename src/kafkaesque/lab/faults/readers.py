"""Consumers: threads that follow the log during a run, and a final reader that reads all of it."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from kafkaesque.lab.faults.checks.history import Function, Key, OperationOutcome, Polled, Value
from kafkaesque.lab.faults.checks.payload import decode_value
from kafkaesque.lab.faults.clients import SILENT, Partitions, consumer_settings
from kafkaesque.lab.faults.recorder import PendingOperation, Recorder

_POLL_S: Final = 0.05
_AGAIN_S: Final = 0.5
_BATCH: Final = 500
_STUCK_S: Final = 2.0
"""A final reader without progress for this long before the end skips an offset."""
_WATERMARK_TIMEOUT_S: Final = 5.0

_UNREADABLE: Final = frozenset({KafkaError.INVALID_MSG, KafkaError._BAD_MSG})
"""The broker or the client found that the batch at this position is damaged."""

Rows = dict[Key, list[tuple[int, Value]]]


class RecordingReader(threading.Thread):
    """Polls until `end`. With `group_id` it joins the group and commits within each poll."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Partitions,
        recorder: Recorder,
        *,
        group_id: str | None,
        seed: int,
        crash_every_s: float,
        session_timeout_ms: int,
    ) -> None:
        super().__init__(name=f"reader-{group_id or 'assigned'}", daemon=True)
        self._bootstrap_servers = bootstrap_servers
        self._partitions = partitions
        self._recorder = recorder
        self._group_id = group_id
        self._random = random.Random(seed)
        self._crash_every_s = crash_every_s
        self._session_timeout_ms = session_timeout_ms
        self._ended = threading.Event()
        self._process = -1
        self._moved: set[Key] = set()
        """Keys whose position was moved by anything but reading since the last poll."""
        self.committed_polls = 0

    def end(self) -> None:
        self._ended.set()

    def run(self) -> None:
        while not self._ended.is_set():
            self._process = self._recorder.next_process()
            self._moved = set()
            group_id = self._group_id or f"assigned-{self._process}"
            settings = consumer_settings(self._bootstrap_servers, group_id)
            settings["session.timeout.ms"] = self._session_timeout_ms
            consumer = Consumer(settings, logger=SILENT)
            self._begin(consumer)
            until = time.monotonic() + self._random.expovariate(1 / self._crash_every_s)
            while time.monotonic() < until and not self._ended.is_set():
                self._poll(consumer)
            crash = self._recorder.invoke(self._process, Function.CRASH)
            consumer.close()
            crash.complete(OperationOutcome.INFO)

    def _begin(self, consumer: Consumer) -> None:
        keys = self._partitions.keys
        if self._group_id is None:
            begin = self._recorder.invoke(self._process, Function.ASSIGN)
            consumer.assign([self._partitions.topic_partition(k, OFFSET_BEGINNING) for k in keys])
        else:
            begin = self._recorder.invoke(self._process, Function.SUBSCRIBE)
            consumer.subscribe(
                list(self._partitions.topics),
                on_assign=self._rebalanced,
                on_revoke=self._rebalanced,
                on_lost=self._rebalanced,
            )
        begin.complete(OperationOutcome.OK, keys=keys)

    def _rebalanced(self, _consumer: Consumer, parts: list[TopicPartition]) -> None:
        self._moved |= {self._partitions.key(part.topic, part.partition) for part in parts}

    def _poll(self, consumer: Consumer) -> None:
        poll = self._recorder.invoke(self._process, Function.POLL)
        rows: Rows = {}
        try:
            messages = consumer.consume(_BATCH, _POLL_S)
            rows, unreadable = take_messages(self._partitions, messages)
            if rows and self._group_id is not None:
                consumer.commit(offsets=self._next_offsets(rows), asynchronous=False)
                self.committed_polls += 1
        except KafkaException as exception:
            self._finish(poll, OperationOutcome.INFO, rows, str(exception))
            self._read_again(consumer, rows)
            return
        self._finish(poll, OperationOutcome.OK, rows)
        for key in unreadable:
            self._moved.add(key)
            skip_offset(consumer, self._partitions, key)

    def _finish(
        self, poll: PendingOperation, outcome: OperationOutcome, rows: Rows, error: str = ""
    ) -> None:
        moved, self._moved = sorted(self._moved), set()
        poll.complete(outcome, [Polled(rows)] if rows else (), rebalanced=moved, error=error)

    def _next_offsets(self, rows: Rows) -> list[TopicPartition]:
        return [self._partitions.topic_partition(k, rows[k][-1][0] + 1) for k in rows]

    def _read_again(self, consumer: Consumer, rows: Rows) -> None:
        """The commit may have failed: read the records again, or the reader itself would skip them."""
        for key, records in rows.items():
            try:
                consumer.seek(self._partitions.topic_partition(key, records[0][0]))
            except KafkaException:
                # The partition was revoked: its new owner starts at the committed offset.
                self._moved.add(key)


def take_messages(partitions: Partitions, messages: list[Message]) -> tuple[Rows, set[Key]]:
    """The records by key, and the keys with damage at the current position."""
    rows: Rows = {}
    unreadable: set[Key] = set()
    for message in messages:
        topic, partition = message.topic(), message.partition()
        error = message.error()
        if error is not None:
            if error.code() in _UNREADABLE and topic in partitions.topics:
                unreadable.add(partitions.key(str(topic), int(partition or 0)))
            continue
        key = partitions.key(str(topic), int(partition or 0))
        value = decode_value(key, message.value())
        rows.setdefault(key, []).append((int(message.offset() or 0), value))
    return rows, unreadable


def skip_offset(consumer: Consumer, partitions: Partitions, key: Key) -> None:
    """Advance one offset past what cannot be read."""
    place = partitions.topic_partition(key, 0)
    position = consumer.position([place])[0].offset
    consumer.seek(partitions.topic_partition(key, max(0, position) + 1))


class FinalReader:
    """Reads every key from its beginning to its end, skipping unreadable offsets."""

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Partitions,
        recorder: Recorder,
        say: Callable[[str], None],
    ) -> None:
        self._partitions = partitions
        self._recorder = recorder
        self._process = recorder.next_process()
        self._say = say
        settings = consumer_settings(bootstrap_servers, f"final-{self._process}")
        # The last offset may be a transaction marker, which is never returned as a record.
        self._consumer = Consumer({**settings, "enable.partition.eof": True}, logger=SILENT)
        self._next_offset = dict.fromkeys(partitions.keys, 0)
        self._ends: dict[Key, int] = {}
        self._moved: set[Key] = set()
        self.skipped = 0
        """Offsets that could not be read."""

    def read(self, within_s: float) -> bool:
        """True if the end of every key was reached in time."""
        deadline = time.monotonic() + within_s
        try:
            if not self._find_ends(deadline):
                return False
            begin = self._recorder.invoke(self._process, Function.ASSIGN)
            self._consumer.assign(
                [self._partitions.topic_partition(k, OFFSET_BEGINNING) for k in self._ends]
            )
            begin.complete(OperationOutcome.OK, keys=list(self._ends))
            return self._read_all(deadline)
        finally:
            self._consumer.close()

    def _find_ends(self, deadline: float) -> bool:
        while time.monotonic() < deadline:
            try:
                for key in self._partitions.keys:
                    place = TopicPartition(*self._partitions.place(key))
                    start, end = self._consumer.get_watermark_offsets(place, _WATERMARK_TIMEOUT_S)
                    self._next_offset[key], self._ends[key] = start, end
            except KafkaException as exception:
                self._say(f"the end of the log is not available yet: {exception}")
                time.sleep(_AGAIN_S)
            else:
                return True
        return False

    def _read_all(self, deadline: float) -> bool:
        progress_at = time.monotonic()
        while lagging := [k for k in self._ends if self._next_offset[k] < self._ends[k]]:
            if time.monotonic() > deadline:
                self._say(f"the final reader did not reach the end of keys {lagging}")
                return False
            if self._poll():
                progress_at = time.monotonic()
            elif time.monotonic() - progress_at > _STUCK_S:
                for key in lagging:
                    self._skip(key)
                progress_at = time.monotonic()
        return True

    def _poll(self) -> bool:
        poll = self._recorder.invoke(self._process, Function.FINAL)
        try:
            messages = self._consumer.consume(_BATCH, _POLL_S)
        except KafkaException:
            poll.complete(OperationOutcome.INFO)
            return False
        rows, unreadable = take_messages(self._partitions, messages)
        moved, self._moved = sorted(self._moved), set()
        if rows:
            poll.complete(OperationOutcome.OK, [Polled(rows)], rebalanced=moved)
        elif moved:
            poll.complete(OperationOutcome.OK, rebalanced=moved)
        for key, records in rows.items():
            self._next_offset[key] = records[-1][0] + 1
        self._take_ends(messages)
        for key in unreadable:
            self._skip(key)
        return bool(rows or unreadable)

    def _take_ends(self, messages: list[Message]) -> None:
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                key = self._partitions.key(str(message.topic()), int(message.partition() or 0))
                self._next_offset[key] = int(message.offset() or 0)

    def _skip(self, key: Key) -> None:
        """Skip one offset at a time: the next one may be readable."""
        self.skipped += 1
        self._next_offset[key] += 1
        self._moved.add(key)
        self._consumer.seek(self._partitions.topic_partition(key, self._next_offset[key]))
