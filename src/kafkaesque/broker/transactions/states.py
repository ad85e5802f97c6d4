"""The states of a transaction and which may follow which (Kafka's TransactionState)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from kafkaesque.model.errors import InvariantBroken


class TransactionState(IntEnum):
    """The numbers are those of the log. Kafka's Dead (6) and PrepareEpochFence (7) stand for steps
    that are one step here, and are never written by anybody."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def title(self) -> str:
        """As DescribeTransactions and ListTransactions tell it."""
        return self.name.title().replace("_", "")

    @property
    def is_ending(self) -> bool:
        """Decided, and markers are on their way."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


_E, _O = TransactionState.EMPTY, TransactionState.ONGOING
_PC, _PA = TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT
_CC, _CA = TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT

ALLOWED_BEFORE: Final = {
    _E: frozenset((_E, _CC, _CA)),
    _O: frozenset((_E, _O, _CC, _CA)),
    _PC: frozenset((_O,)),
    _PA: frozenset((_E, _O, _CC, _CA)),
    _CC: frozenset((_PC,)),
    _CA: frozenset((_PA,)),
}
"""From which states a state may be entered. PREPARE_ABORT without a transaction is KIP-890: a client
that does not know whether anything of it arrived aborts to be sure."""


def check_move(before: TransactionState, after: TransactionState) -> None:
    if before not in ALLOWED_BEFORE[after]:
        raise InvariantBroken(f"a transaction cannot go from {before.title} to {after.title}")
