"""A producer thread: sends at a fixed rate whatever the broker does, and records each outcome."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.lab.faults.checks.history import Function, Key, OperationOutcome, SentRecord
from kafkaesque.lab.faults.checks.payload import encode_value
from kafkaesque.lab.faults.clients import (
    MESSAGE_TIMEOUT_MS,
    SILENT,
    Partitions,
    error_in,
    outcome_of,
    producer_settings,
)
from kafkaesque.lab.faults.recorder import PendingOperation, Recorder

_TICK_S: Final = 0.005
_BURST_MAX: Final = 500
"""How many records are sent at once to catch up after a stall of the thread."""
_DRAIN_MS: Final = MESSAGE_TIMEOUT_MS + 5_000


class Sender(threading.Thread):
    """An idempotent producer with acks=all and many records in flight, each an operation of its own.

    All senders send to every key: number n of `senders` uses the values with remainder n, so that values
    are unique without a lock.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        partitions: Partitions,
        recorder: Recorder,
        *,
        number: int,
        senders: int,
        records_per_s: float,
        value_bytes: int,
        seed: int,
        crash_every_s: float,
    ) -> None:
        super().__init__(name=f"sender-{number}", daemon=True)
        self._settings = producer_settings(bootstrap_servers)
        self._partitions = partitions
        self._recorder = recorder
        self._next_value = dict.fromkeys(partitions.keys, number)
        self._senders = senders
        self._records_per_s = records_per_s
        self._value_bytes = value_bytes
        self._random = random.Random(seed)
        self._crash_every_s = crash_every_s
        self._ended = threading.Event()
        self._process = -1
        self.failure: str | None = None

    def end(self) -> None:
        """Stop sending; the thread ends when the outcome of every record is recorded."""
        self._ended.set()

    def run(self) -> None:
        """Run one client after another, each with a process number of its own, until `end`."""
        while not self._ended.is_set():
            self._process = self._recorder.next_process()
            producer = Producer(self._settings, logger=SILENT)
            life_s = self._random.expovariate(1 / self._crash_every_s)
            self._live(producer, time.monotonic() + life_s)
            if self._ended.is_set():
                self._drain(producer)
            else:
                self._crash(producer)

    def _live(self, producer: Producer, until: float) -> None:
        started = time.monotonic()
        sent = 0
        while not self._ended.wait(_TICK_S):
            now = time.monotonic()
            if now >= until or self.failure is not None:
                self.failure = None
                return
            due = int((now - started) * self._records_per_s) - sent
            for _ in range(min(due, _BURST_MAX)):
                self._send(producer, self._random.choice(self._partitions.keys))
            # Records that were due during a stall are dropped.
            sent += due
            self._serve(producer)

    def _serve(self, producer: Producer, wait_s: float = 0.0) -> None:
        """Handle delivery reports."""
        try:
            if wait_s:
                producer.flush(wait_s)
            else:
                producer.poll(0)
        except KafkaException as exception:
            # Raised after a fatal error: this client is finished.
            self.failure = str(error_in(exception))

    def _send(self, producer: Producer, key: Key) -> None:
        value = self._next_value[key]
        self._next_value[key] += self._senders
        topic, partition = self._partitions.place(key)
        data = encode_value(key, value, self._value_bytes)
        invocation = self._recorder.invoke(self._process, Function.SEND)
        report = partial(self._delivered, invocation, key, value)
        try:
            producer.produce(topic, data, partition=partition, on_delivery=report)
        except BufferError:
            invocation.complete(OperationOutcome.FAIL, [SentRecord(key, None, value)])
        except KafkaException as exception:
            # Refused before it was queued, for example after a fatal error.
            invocation.complete(OperationOutcome.FAIL, [SentRecord(key, None, value)])
            self.failure = str(error_in(exception))

    def _delivered(
        self,
        invocation: PendingOperation,
        key: Key,
        value: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        offset = message.offset()
        has_offset = error is None and offset is not None and offset >= 0
        sent = [SentRecord(key, offset if has_offset else None, value)]
        invocation.complete(outcome_of(error), sent, error=str(error or ""))
        if error is not None and error.fatal():
            self.failure = str(error)

    def _crash(self, producer: Producer) -> None:
        """Drop the client with all records in flight; their outcome is unknown."""
        crash = self._recorder.invoke(self._process, Function.CRASH)
        self._purge(producer)
        crash.complete(OperationOutcome.INFO)

    def _drain(self, producer: Producer) -> None:
        self._serve(producer, _DRAIN_MS / 1000)
        self._purge(producer)

    def _purge(self, producer: Producer) -> None:
        producer.purge(in_queue=True, in_flight=True, blocking=True)
        self._serve(producer, 1.0)
