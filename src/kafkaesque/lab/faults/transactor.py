"""A thread that runs one transaction after the other, and records what became of each."""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

from kafkaesque.lab.faults.chance import seeded
from kafkaesque.lab.faults.checks.history import Function, Outcome, Sent
from kafkaesque.lab.faults.checks.payload import encode_value
from kafkaesque.lab.faults.clients import Partitions
from kafkaesque.lab.faults.recorder import Recorder
from kafkaesque.lab.faults.wire_producer import Refused, Unserved, WireProducer

FIRST_VALUE: Final = 1_000_000_000
"""Values below are those of plain senders."""
_RECORDS_MAX: Final = 4
_ABORT_SHARE: Final = 0.25
_VALUE_BYTES: Final = 100
_END_S: Final = 90.0


class Transactor(threading.Thread):
    """`number` of `count`: values are unique without a lock."""

    def __init__(
        self,
        producer: WireProducer,
        partitions: Partitions,
        recorder: Recorder,
        *,
        number: int,
        count: int,
        seed: int,
    ) -> None:
        super().__init__(name=f"transactor-{number}", daemon=True)
        self._producer = producer
        self._partitions = partitions
        self._recorder = recorder
        self._next_value = FIRST_VALUE + number
        self._count = count
        self._random = seeded(seed)
        self._ended = threading.Event()
        self.counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter()
        self.failure: str | None = None

    def run(self) -> None:
        try:
            while not self._ended.is_set():
                self._producer.init()
                process = self._recorder.next_process()
                while not self._ended.is_set() and self._transact(process):
                    pass
        except Unserved as error:
            self.failure = str(error)
        except Refused as error:
            self.failure = f"init was refused: {error}"
        finally:
            self._producer.close()

    def end(self) -> None:
        self._ended.set()

    def wait(self) -> bool:
        self.join(_END_S)
        return not self.is_alive()

    def _transact(self, process: int) -> bool:
        """One transaction; False if the producer must begin anew."""
        invocation = self._recorder.invoke(process, Function.TXN)
        sent: list[Sent] = []
        is_commit = self._random.random() >= _ABORT_SHARE
        is_usable = True
        try:
            for _ in range(self._random.randint(1, _RECORDS_MAX)):
                self._send(sent)
        except Refused as error:
            self.refusals[f"send {error}"] += 1
            is_commit = False
        outcome = Outcome.INFO
        try:
            self._producer.end(is_commit=is_commit)
            outcome = Outcome.OK if is_commit else Outcome.FAIL
        except Refused as error:
            self.refusals[f"end {error}"] += 1
            is_usable = False
        finally:
            invocation.complete(outcome, sent)
        self.counts[outcome] += 1
        return is_usable

    def _send(self, sent: list[Sent]) -> None:
        key = self._random.choice(self._partitions.keys)
        value = self._next_value
        self._next_value += self._count
        sent.append(Sent(key, None, value))
        data = encode_value(key, value, _VALUE_BYTES)
        sent[-1] = Sent(key, self._producer.send(self._partitions.place(key), data), value)
