"""Where client threads write down what they do: one index and one clock for all of them."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Sequence

from kafkaesque.lab.faults.checks.history import Function, Key, Operation, Outcome, Polled, Sent


class Invocation:
    """An operation that has begun. `complete` it once."""

    __slots__ = ("_recorder", "f", "index", "invoked_us", "process")

    def __init__(self, recorder: Recorder, process: int, f: Function) -> None:
        self._recorder = recorder
        self.process = process
        self.f = f
        self.invoked_us = recorder.now_us()
        self.index = recorder.next_index()

    def complete(
        self,
        outcome: Outcome,
        micro: Sequence[Sent | Polled] = (),
        *,
        keys: Sequence[Key] = (),
        rebalanced: Sequence[Key] = (),
        error: str = "",
    ) -> None:
        self._recorder.take(
            Operation(
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
    """Safe to use from any thread."""

    def __init__(self) -> None:
        self._started_ns = time.monotonic_ns()
        self._indexes = itertools.count()
        self._processes = itertools.count()
        self._lock = threading.Lock()
        self._operations: list[Operation] = []
        self.acknowledged = 0
        """Records acknowledged so far, for the progress line."""
        self.newest_acknowledged_us: dict[Key, int] = {}
        """When the newest record of each key that is acknowledged was sent."""

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._started_ns) // 1000

    def next_index(self) -> int:
        with self._lock:
            return next(self._indexes)

    def next_process(self) -> int:
        """A number for a client that never had one: also for one that comes back after its death."""
        with self._lock:
            return next(self._processes)

    def invoke(self, process: int, f: Function) -> Invocation:
        return Invocation(self, process, f)

    def take(self, operation: Operation) -> None:
        with self._lock:
            self._operations.append(operation)
            if operation.outcome is Outcome.OK and operation.f is Function.SEND:
                self.acknowledged += 1
                for sent in operation.sends:
                    newest_us = self.newest_acknowledged_us.get(sent.key, operation.invoked_us)
                    self.newest_acknowledged_us[sent.key] = max(newest_us, operation.invoked_us)

    def operations(self) -> list[Operation]:
        """All that were completed, in the order of their indexes."""
        with self._lock:
            return sorted(self._operations, key=lambda operation: operation.index)
