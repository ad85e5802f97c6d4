"""Crashes of the sync journal. Logs are synced partly in the journal and partly by themselves; they
are cut, closed and opened again; the journal fails, its rounds come late, and the power fails at any
call."""

from __future__ import annotations

from random import Random

import pytest
from tests.broker.replication.sync_journal_rig import JournalRig, headers

from kafkaesque.broker.replication.sync_journal_recovery import truncate_at_gap
from kafkaesque.broker.storage.unsynced_tail import Share
from kafkaesque.lab.sim.disk import PowerCut
from kafkaesque.model.ids import GroupId, Offset
from kafkaesque.records.batch import BatchHeader

LOGS = 3
STEPS = 150
SEEDS = 60


class Model:
    """The batches that one log must have."""

    def __init__(self) -> None:
        self.batches: list[BatchHeader] = []
        self.durable_offset = 0

    def cut(self, offset: int) -> None:
        self.batches = [batch for batch in self.batches if batch.next_offset <= offset]
        end_offset = self.batches[-1].next_offset if self.batches else 0
        self.durable_offset = min(self.durable_offset, end_offset)


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.rig = JournalRig(
            Random(seed + 1),
            segment_bytes=self.random.choice((300, 1000, 100_000)),
            file_bytes=self.random.choice((500, 3000)),
        )
        self.models = [Model() for _ in range(LOGS)]
        self.late: list[Share | None] = []
        """Taken for rounds that write them later."""
        self.epoch = 1
        for group in range(LOGS):
            self.rig.open(group)

    def run(self) -> None:
        for _ in range(STEPS):
            if self.random.random() < 0.15:
                self.rig.disk.faults.calls_to_power_cut = self.random.randrange(12)
            try:
                self.step()
            except PowerCut:
                self.crash()
        self.crash()

    def step(self) -> None:
        group = self.random.randrange(LOGS)
        log, model = self.rig.logs[GroupId(group)], self.models[group]
        match self.random.randrange(16):
            case 0 | 1 | 2 | 3 | 4:
                self.append(group, model)
            case 5 | 6 | 7 if self.rig.journal.has_room(1):
                self.rig.sync()
                for number, one in enumerate(self.models):
                    one.durable_offset = int(self.rig.logs[GroupId(number)].synced_offset)
            case 8:
                log.sync()
                model.durable_offset = int(log.synced_offset)
            case 9:
                offset = self.random.randrange(int(log.log_end_offset) + 1)
                before = model.batches
                model.cut(offset)
                try:
                    log.truncate_to(Offset(offset))
                except PowerCut:
                    self.half_cut(group, before)
                    raise
                self.epoch += 1
            case 10:
                self.rig.journal.retire()
            case 11 if self.random.random() < 0.3:
                self.crash()
            case 12:
                log.close(clean=False)
                self.rig.open(group)
            case 13:
                self.late.append(log.share())
            case 14:
                self.rig.journal.write([share for share in self.late if share is not None])
                self.late.clear()
            case 15 if self.rig.journal.has_room(1):
                self.fail_journal()

    def fail_journal(self) -> None:
        shares = [log.share() for log in self.rig.logs.values()]
        self.rig.disk.faults.sync_failures = 1
        self.rig.journal.write([share for share in shares if share is not None])
        self.rig.disk.faults.sync_failures = 0
        for number, model in enumerate(self.models):
            model.durable_offset = int(self.rig.logs[GroupId(number)].sync())

    def append(self, group: int, model: Model) -> None:
        offset = int(self.rig.logs[GroupId(group)].log_end_offset)
        try:
            data = self.rig.append(group, self.random.randrange(1, 4), epoch=self.epoch)
        except PowerCut:
            self.unknown = group, offset
            raise
        model.batches.extend(headers(data))

    unknown: tuple[int, int] | None = None
    """A log and the offset of a batch that was being written: it may be there or not."""
    doubtful: tuple[int, list[BatchHeader]] | None = None
    """A log that was being cut, and what it had before."""

    def half_cut(self, group: int, before: list[BatchHeader]) -> None:
        self.doubtful = group, before

    def crash(self) -> None:
        self.late.clear()
        self.rig.disk.crash()
        while True:
            if self.random.random() < 0.3:
                self.rig.disk.faults.calls_to_power_cut = self.random.randrange(20)
            try:
                self.rig.start()
                break
            except PowerCut:
                self.rig.disk.crash()
        self.rig.disk.faults.calls_to_power_cut = -1
        assert self.rig.journal_files() == []
        for group, model in enumerate(self.models):
            self.check(group, model)
        self.unknown = self.doubtful = None

    def check(self, group: int, model: Model) -> None:
        # For logs without batches in the journal, EntryLog ensures that.
        truncate_at_gap(self.rig.logs[GroupId(group)], Offset(0))
        found = self.rig.content(group)
        known = model.batches
        if self.doubtful is not None and self.doubtful[0] == group:
            is_cut = found == known[: len(found)]
            known = known if is_cut else self.doubtful[1]
        if self.unknown is not None and self.unknown[0] == group:
            found = [batch for batch in found if batch.base_offset < self.unknown[1]]
            self.rig.logs[GroupId(group)].truncate_to(Offset(self.unknown[1]))
        assert found == known[: len(found)]
        assert (found[-1].next_offset if found else 0) >= model.durable_offset
        model.batches = found
        model.durable_offset = int(self.rig.logs[GroupId(group)].sync())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_logs_have_everything_durable_and_nothing_that_was_cut(seed: int) -> None:
    Story(seed).run()
