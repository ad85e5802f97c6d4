"""The state that a node would recover if the power were cut now and no unsynced byte survived."""

from __future__ import annotations

from functools import lru_cache

from kafkaesque.broker.raft.types import FRESH, HardState
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.rules.sync_journal_records import JournaledLog, replay
from kafkaesque.broker.replication.sync_journal_recovery import FILE_PREFIX
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.disk import JOURNAL_PATH, SimulatedDisk
from kafkaesque.model.ids import GroupId
from kafkaesque.records.batch import iter_batches


def durable_hard_state(disk: SimulatedDisk, group: GroupId) -> HardState:
    """The hard state that the real journal reads from a copy of the durable files."""
    files = OpenFiles(8, disk.durable_copy(JOURNAL_PATH))
    journal = RaftJournal.open(JOURNAL_PATH, files)
    facts = journal.facts(group)
    return FRESH if facts is None else facts.hard_state


def is_journaled(disk: SimulatedDisk, log_path: str, batch: bytes) -> bool:
    """Whether the durable part of the sync journal contains the batch of that log."""
    contents = disk.durable_contents(JOURNAL_PATH)
    files = tuple(contents[name] for name in sorted(contents) if name.startswith(FILE_PREFIX))
    return (log_path, batch) in _journaled(files)


@lru_cache(maxsize=64)
def _journaled(files: tuple[bytes, ...]) -> frozenset[tuple[str, bytes]]:
    """Log path and bytes of every batch that recovery would find."""
    logs: dict[GroupId, JournaledLog] = {}
    for content in files:
        replay(logs, memoryview(content))
    data_path = JOURNAL_PATH.rpartition("/")[0]
    return frozenset(
        (f"{data_path}/{log.path}", bytes(data[position : position + header.size_bytes]))
        for log in logs.values()
        for _, data in log.batches
        for position, header in iter_batches(data)
    )
