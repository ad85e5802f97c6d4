"""Known bugs, planted one at a time: each takes away one rule that someone might consider needless.

Whether and how soon each is found shows what the simulation is worth.
"""

from __future__ import annotations

from typing import Final

from kafkaesque.lab.sim.planted.raft import RAFT_BUGS
from kafkaesque.lab.sim.planted.storage import STORAGE_BUGS
from kafkaesque.lab.sim.planted.sync_journal import SYNC_JOURNAL_BUGS
from kafkaesque.lab.sim.planted.transactions import TRANSACTION_BUGS

PLANTED: Final = [*RAFT_BUGS, *STORAGE_BUGS, *TRANSACTION_BUGS, *SYNC_JOURNAL_BUGS]
