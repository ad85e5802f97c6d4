"""Records the operations of all client threads, with one index and one clock."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    Function,
    Key,
    OperationOutcome,
    Polled,
    SentRecord,
)


class PendingOperation:
    """An operation that has begun. Call `complete` once."""

    __slots__ = ("_recorder", "f", "index", "invoked_us", "process")

    def __init__(self, recorder: Recorder, process: int, f: Function) -> None:
        self._recorder = recorder
        self.process = process
        self.f = f
        self.invoked_us = recorder.now_us()
        self.index = recorder.next_index()

    def complete(
        self,
        outcome: OperationOutcome,
        micro: Sequence[SentRecord | Polled] = (),
        *,
        keys: Sequence[Key] = (),
        rebalanced: Sequence[Key] = (),
        error: str = "",
    ) -> None:
        self._recorder.take(
            ClientOperation(
                index=self.index,
                process=self.process,
                outcome=outcome,
                f=self.f,
                micro=tuple(micro),
                keys=tuple(keys),
                rebalanced=tuple(rebalanced),
                invoked_us=self.invoked_us,
                completed_us=self._recorder.now_us(),
                error=error,
            )
        )


class Recorder:
    """The operations of a run. Thread-safe."""

    def __init__(self) -> None:
        self._started_ns = time.monotonic_ns()
        self._indexes = itertools.count()
        self._processes = itertools.count()
        self._lock = threading.Lock()
        self._operations: list[ClientOperation] = []
        self.acknowledged = 0
        """Records acknowledged so far, for the progress line."""
        self.newest_acknowledged_us: dict[Key, int] = {}
        """For each key, when its newest acknowledged record was sent."""

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._started_ns) // 1000

    def next_index(self) -> int:
        with self._lock:
            return next(self._indexes)

    def next_process(self) -> int:
        """A number for a new client, including one that replaces a dead one."""
        with self._lock:
            return next(self._processes)

    def invoke(self, process: int, f: Function) -> PendingOperation:
        return PendingOperation(self, process, f)

    def take(self, operation: ClientOperation) -> None:
        with self._lock:
            self._operations.append(operation)
            if operation.outcome is OperationOutcome.OK and operation.f is Function.SEND:
                self.acknowledged += 1
                for sent in operation.sends:
                    newest_us = self.newest_acknowledged_us.get(sent.key, operation.invoked_us)
                    self.newest_acknowledged_us[sent.key] = max(newest_us, operation.invoked_us)

    def operations(self) -> list[ClientOperation]:
        """All completed operations, sorted by index."""
        with self._lock:
            return sorted(self._operations, key=lambda operation: operation.index)
