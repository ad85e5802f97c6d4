"""What a node would find if the power went now and nothing unsynced survived."""

from __future__ import annotations

from kafkaesque.model.ids import GroupId
from kafkaesque.raft.types import FRESH, HardState
from kafkaesque.replication.raft_journal import RaftJournal
from kafkaesque.sim.disk import SimulatedDisk
from kafkaesque.sim.layout import JOURNAL_PATH
from kafkaesque.storage.open_files import OpenFiles


def durable_hard_state(disk: SimulatedDisk, group: GroupId) -> HardState:
    """Read by the real journal from a copy of what is durable."""
    files = OpenFiles(8, disk.durable_copy(JOURNAL_PATH))
    journal = RaftJournal.open(JOURNAL_PATH, files)
    facts = journal.facts(group)
    return FRESH if facts is None else facts.hard_state
