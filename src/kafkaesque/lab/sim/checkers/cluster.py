"""What the controller's log amounts to."""

from __future__ import annotations

from kafkaesque.lab.sim.checkers.base import Checker
from kafkaesque.lab.sim.truth import require
from kafkaesque.model.ids import Offset


class TablesAgree(Checker):
    """Tables that have seen the same commands are equal, on every node, after every replay."""

    def __init__(self) -> None:
        self._at: dict[Offset, bytes] = {}

    def applied(self, offset: Offset, tables: bytes) -> None:
        known = self._at.setdefault(offset, tables)
        require(known == tables, "tables agree", f"they differ at offset {offset}")
