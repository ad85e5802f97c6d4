"""Producer state that survives the deletion of its records and a crash."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from tests.broker.partitions.rig import batch, open_rig
from tests.broker.partitions.test_transactions import (
    ME,
    append,
    committed,
    guard,
    mark,
    run,
    transactional,
)

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.storage.snapshots import list_snapshots
from kafkaesque.model.errors import InvalidProducerEpoch
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId


async def write(partition: Partition, sequence: int, *values: bytes) -> Offset:
    appended = partition.append(batch(*values, producer=5, sequence=sequence), all_replicas=True)
    assert isinstance(appended, Appended)
    await committed(partition, appended)
    return appended.base_offset


def killed(path: Path) -> Path:
    """The files as they are now, before anything is closed. Without those that a thread is writing:
    a deletion is applied once more when its entry is committed, and may be at it."""
    target = path / "killed"
    shutil.copytree(path / "running", target, ignore=shutil.ignore_patterns("*.tmp"))
    return target


@pytest.mark.parametrize("is_stale", [False, True])
def test_retry_of_a_deleted_batch_is_recognised(tmp_path: Path, is_stale: bool) -> None:
    async def story() -> None:
        async with open_rig(tmp_path / "running") as rig:
            await write(rig.partition, 0, b"a")
            await write(rig.partition, 1, b"b")
            rig.partition.are_producers_stale = is_stale
            await rig.partition.delete_before(Offset(2))
            left = killed(tmp_path)
        async with open_rig(left, clean=False) as rig:
            assert rig.partition.log_start_offset == 2
            assert await write(rig.partition, 1, b"b") == 1, "where it was"
            assert await write(rig.partition, 2, b"c") == 2

    run(story())


def test_batch_that_the_log_start_splits_is_counted_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path / "running") as rig:
            await write(rig.partition, 0, b"a")
            await write(rig.partition, 1, b"b", b"c", b"d")
            await write(rig.partition, 4, b"e")
            expected = rig.partition.producers.snapshot()
            await rig.partition.delete_before(Offset(2))
            left = killed(tmp_path)
        async with open_rig(left, clean=False) as rig:
            assert rig.partition.producers.snapshot() == expected

    run(story())


def test_later_snapshots_do_not_replace_the_one_at_the_log_start(tmp_path: Path) -> None:
    """They may be beyond the end of the log that a power cut leaves."""

    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await write(rig.partition, 0, b"a")
            await rig.partition.delete_before(Offset(1))
            for sequence in (1, 2, 3):
                await write(rig.partition, sequence, b"b")
                rig.partition.save_producers()
            assert list_snapshots(str(rig.partition.log.directory)) == [1, 3, 4]
            await rig.partition.delete_before(Offset(2))
            rig.partition.save_producers()
            assert list_snapshots(str(rig.partition.log.directory)) == [2, 3, 4]

    run(story())


def test_full_disk_is_freed_even_if_the_producers_cannot_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await write(rig.partition, 0, b"a")
            (tmp_path / "log" / f"{1:020d}.snapshot.tmp").mkdir()
            await rig.partition.delete_before(Offset(1))
            assert rig.partition.log_start_offset == 1
            assert list_snapshots(str(rig.partition.log.directory)) == []

    run(story())
    assert "producers are forgotten with their records" in caplog.text


def test_late_marker_is_rejected_although_the_records_are_deleted(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path / "running") as rig:
            await append(rig.partition, transactional(epoch=2), guard(rig.partition, epoch=2))
            await mark(rig.partition, commit=False, epoch=3)
            await rig.partition.delete_before(rig.partition.high_watermark)
            left = killed(tmp_path)
        async with open_rig(left, clean=False) as rig:
            with pytest.raises(InvalidProducerEpoch):
                rig.partition.producers.judge_marker(ME, ProducerEpoch(1), 1, is_epoch_new=True)

    run(story())


def test_open_transaction_stays_open(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path / "running") as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            await rig.partition.delete_before(Offset(1))
            await write(rig.partition, 0, b"a")
            left = killed(tmp_path)
        async with open_rig(left, clean=False) as rig:
            table = rig.partition.producers
            assert table.transactions.first_offset(ProducerId(ME)) == 0
            assert rig.partition.stable_offset == 1, "nothing before the log's start is left"

    run(story())


def test_kill_between_saving_and_deleting_changes_nothing(tmp_path: Path) -> None:
    """The snapshot of the new start lacks the transactions aborted before it (simulation, seed 704)."""

    async def story() -> None:
        async with open_rig(tmp_path / "running") as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            await mark(rig.partition, commit=False)
            await write(rig.partition, 0, b"a")
            content = rig.partition.producers.before(Offset(2)).snapshot(is_of_start=True)
            rig.partition.log.save_snapshot(Offset(2), content)
            left = killed(tmp_path)
        async with open_rig(left, clean=False) as rig:
            table = rig.partition.producers.transactions
            assert [one.first_offset for one in table.aborted.between(Offset(0), Offset(9))] == [0]
            assert await write(rig.partition, 0, b"a") == 2, "a retry"

    run(story())
