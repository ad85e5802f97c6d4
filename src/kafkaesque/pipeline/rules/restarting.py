"""Whether and when a failed query is restarted.

Some failures are transient: on a busy machine a Python worker may need longer to start than Spark's ten
seconds (no setting changes them), and brokers may be down for longer than a deadline. A restart loses and
duplicates nothing. Failures that a restart cannot fix end the query at once.
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
"""Prefixes of failures that need an operator; the query is not restarted after them."""


class Restarts:
    """The restarts of one query: at most `count_max` in a row without a finished batch in between."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._in_a_row = 0
        self._batch: int | None = None

    def wait_s(self, failure: str, batch: int | None) -> float | None:
        """Returns the delay before the next start; None if the query must not be restarted.

        `batch` is the last finished batch, of this run or an earlier one.
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
