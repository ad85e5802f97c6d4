from __future__ import annotations

from tests.broker.replication.sync_journal_rig import JournalRig

from kafkaesque.broker.replication.flusher import Round, plan_round, report_shared
from kafkaesque.broker.storage.unsynced_tail import TAIL_SIZE_BYTES_MAX, Share
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import GroupId, Offset


class LogOfGroup:
    """Replaces a replica: has its log, and records the outcomes it gets."""

    def __init__(self, rig: JournalRig, group: int) -> None:
        self.log = rig.logs[GroupId(group)]
        self.outcomes: list[object] = []

    def sync(self) -> Offset:
        return self.log.sync()

    def share(self) -> Share | None:
        return self.log.share()

    def synced(self, offset: Offset) -> None:
        self.outcomes.append(offset)

    def sync_failed(self, error: StorageFailed) -> None:
        self.outcomes.append(error)


def new_logs(rig: JournalRig, count: int) -> list[LogOfGroup]:
    for group in range(count):
        rig.append(group)
    return [LogOfGroup(rig, group) for group in range(count)]


def test_few_logs_sync_their_own_files() -> None:
    rig = JournalRig()
    rig.journal.logs_min = 3
    logs = new_logs(rig, 2)
    assert plan_round(logs, rig.journal) == Round(logs, ())
    assert plan_round(logs, None) == Round(logs, ())


def test_many_logs_share_the_journal_and_one_with_much_does_not() -> None:
    rig = JournalRig()
    rig.journal.logs_min = 3
    logs = new_logs(rig, 4)
    rig.append(0, size_bytes=TAIL_SIZE_BYTES_MAX)
    planned = plan_round(logs, rig.journal)
    assert planned.by_file == [logs[0]]
    assert [shared.log for shared in planned.by_journal] == logs[1:]


def test_logs_sync_their_own_files_while_the_journal_lags() -> None:
    rig = JournalRig(file_bytes=300)
    while rig.journal.has_room(1):
        rig.append(0)
        rig.sync()
    logs = new_logs(rig, 3)
    assert plan_round(logs, rig.journal) == Round(logs, ())


def test_logs_get_the_outcome() -> None:
    rig = JournalRig()
    logs = new_logs(rig, 2)
    planned = plan_round(logs, rig.journal)
    rig.journal.write([share for _, share in planned.by_journal])
    assert logs[0].log.synced_offset == 0
    report_shared(planned.by_journal)
    assert [log.outcomes for log in logs] == [[1], [1]]
    assert logs[0].log.synced_offset == 1
