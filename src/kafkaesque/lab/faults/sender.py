"""A producer thread: sends at a rate whatever the broker does, and records what became of each."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.checks.history import Function, Key, Outcome, Sent
from kafkaesque.lab.faults.checks.payload import encode_value
from kafkaesque.lab.faults.clients import (
    MESSAGE_TIMEOUT_MS,
    SILENT,
    Partitions,
    error_in,
    outcome_of,
    producer_settings,
)
from kafkaesque.lab.faults.recorder import Invocation, Recorder

_TICK_S: Final = 0.005
_BURST_MAX: Final = 500
"""Records sent at once to catch up after the thread was held up."""
_DRAIN_MS: Final = MESSAGE_TIMEOUT_MS + 5_000


class Sender(threading.Thread):
    """Idempotent, acks=all, many records under way at a time, each an operation of its own.

    Values of one key come from all senders: the one with number n of `senders` uses those that
    leave the rest n, so they are unique without a lock.
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
        self._random = seeded(seed)
        self._crash_every_s = crash_every_s
        self._ended = threading.Event()
        self._process = -1
        self.failure: str | None = None

    def end(self) -> None:
        """Send nothing more; the thread goes on until everything sent is accounted for."""
        self._ended.set()

    def run(self) -> None:
        """Lives of clients: each is one process, and a new one follows its death."""
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
            # What a stalled thread could not send is dropped, not made up for.
            sent += due
            self._serve(producer)

    def _serve(self, producer: Producer, wait_s: float = 0.0) -> None:
        """Take in delivery reports."""
        try:
            if wait_s:
                producer.flush(wait_s)
            else:
                producer.poll(0)
        except KafkaException as exception:
            # It comes out here after a fatal error: this client is at its end.
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
            invocation.complete(Outcome.FAIL, [Sent(key, None, value)])
        except KafkaException as exception:
            # Refused before it was queued, as after a fatal error.
            invocation.complete(Outcome.FAIL, [Sent(key, None, value)])
            self.failure = str(error_in(exception))

    def _delivered(
        self,
        invocation: Invocation,
        key: Key,
        value: int,
        error: KafkaError | None,
        message: Message,
    ) -> None:
        offset = message.offset()
        is_told = error is None and offset is not None and offset >= 0
        sent = [Sent(key, offset if is_told else None, value)]
        invocation.complete(outcome_of(error), sent, error=str(error or ""))
        if error is not None and error.fatal():
            self.failure = str(error)

    def _crash(self, producer: Producer) -> None:
        """Drop the client with all that it has under way; the reports say that nobody knows."""
        crash = self._recorder.invoke(self._process, Function.CRASH)
        self._give_up(producer)
        crash.complete(Outcome.INFO)

    def _drain(self, producer: Producer) -> None:
        self._serve(producer, _DRAIN_MS / 1000)
        self._give_up(producer)

    def _give_up(self, producer: Producer) -> None:
        producer.purge(in_queue=True, in_flight=True, blocking=True)
        self._serve(producer, 1.0)
