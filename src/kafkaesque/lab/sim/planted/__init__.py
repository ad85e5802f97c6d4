"""Known bugs, planted one at a time: each removes one rule that might seem unnecessary.

They measure the simulation: whether it finds each bug, and how soon.
"""

from __future__ import annotations

from typing import Final

from kafkaesque.lab.sim.planted.raft import RAFT_BUGS
from kafkaesque.lab.sim.planted.storage import STORAGE_BUGS
from kafkaesque.lab.sim.planted.sync_journal import SYNC_JOURNAL_BUGS
from kafkaesque.lab.sim.planted.transactions import TRANSACTION_BUGS

PLANTED: Final = [*RAFT_BUGS, *STORAGE_BUGS, *TRANSACTION_BUGS, *SYNC_JOURNAL_BUGS]
