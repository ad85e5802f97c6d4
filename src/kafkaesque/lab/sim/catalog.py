"""All planted bugs."""

from __future__ import annotations

from typing import Final

from kafkaesque.lab.sim.planted_raft import RAFT_BUGS
from kafkaesque.lab.sim.planted_storage import STORAGE_BUGS
from kafkaesque.lab.sim.planted_sync_journal import SYNC_JOURNAL_BUGS
from kafkaesque.lab.sim.planted_transactions import TRANSACTION_BUGS

PLANTED: Final = [*RAFT_BUGS, *STORAGE_BUGS, *TRANSACTION_BUGS, *SYNC_JOURNAL_BUGS]
