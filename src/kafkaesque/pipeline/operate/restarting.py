"""Whether and when a query that failed is started again. Rules only.

A machine under load starts a Python worker too late for Spark, which waits ten seconds and no setting
moves; brokers are away for longer than a deadline. Neither is a reason to be away for good: nothing is
lost or doubled by a restart. What no restart can mend is told at once.
"""

from __future__ import annotations

from typing import Final

from kafkaesque.model.backoff import backoff_s

WAIT_S_MIN: Final = 2.0
WAIT_S_MAX: Final = 60.0
FINAL: Final = (
    "DataLoss",
    "TableRefused",
    "CheckpointLost",
    "CheckpointInUse",
    "InvalidOption",
    "KafkaRefused",
    "RecordsDamaged",
)
"""Failures that stay until somebody does something, by the name that they begin with."""


class Restarts:
    """Of one query: at most `count_max` in a row without a finished batch in between."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._in_a_row = 0
        self._batch: int | None = None

    def wait_s(self, failure: str, batch: int | None) -> float | None:
        """How long to wait before the next start; None if there is to be none.

        `batch` is the last one that was finished, in this life or one before.
        """
        if failure.startswith(FINAL):
            return None
        if batch is not None and batch != self._batch:
            self._batch = batch
            self._in_a_row = 0
        if self._in_a_row >= self._count_max:
            return None
        self._in_a_row += 1
        return backoff_s(self._in_a_row - 1, WAIT_S_MIN, WAIT_S_MAX)
