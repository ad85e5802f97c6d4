"""Cleaning real logs: what is kept, crashes at every step, concurrent readers."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.storage.compacting import (
    DAY_MS,
    KEYED,
    batches,
    clean,
    end_transaction,
    job_of,
    put,
    records,
    table,
)
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.cleaner import Cleaning
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.lab.sim.disk import PowerCut, SimulatedDisk
from kafkaesque.model.errors import CorruptMessage, StorageFailed
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import Codec
from kafkaesque.records.codec import Record
from kafkaesque.records.rewriting import delete_horizon_ms


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log.open(tmp_path / "log", KEYED, OpenFiles(20), clean=False)


def fill(log: Log, count: int = 60, keys: int = 5) -> None:
    for i in range(count):
        put(
            log,
            (b"k%d" % (i % keys), b"v%d" % i),
            (b"u%d" % i, b"once") if i % 9 == 0 else (b"k0", b""),
        )


def check_cleaned(log: Log, before: list[Record]) -> None:
    """Asserts that cleaning changed nothing that readers rely on."""
    after = records(log)
    assert table(after) == table(before)
    assert [record for record in before if record in after] == after


# -- what stays ----------------------------------------------------------------------------------


def test_newest_record_of_each_key_is_kept_at_its_offset(log: Log) -> None:
    fill(log)
    before, end_offset, size_bytes = records(log), log.log_end_offset, log.size_bytes
    clean(log)
    check_cleaned(log, before)
    keys = [record.key for record in records(log)]
    assert len(keys) == len(set(keys))
    assert (log.log_end_offset, log.log_start_offset) == (end_offset, 0)
    assert log.size_bytes < size_bytes / 2
    assert log.cleaned.offset == end_offset


@settings(deadline=None, max_examples=40)
@given(
    rounds=st.lists(
        st.lists(
            st.tuples(
                st.lists(
                    st.tuples(
                        st.sampled_from([b"a", b"b", b"c", b"d", b"e"]),
                        st.none() | st.binary(max_size=40),
                    ),
                    min_size=1,
                    max_size=4,
                ),
                st.sampled_from([Codec.NONE, Codec.LZ4, Codec.GZIP]),
            ),
            max_size=25,
        ),
        min_size=1,
        max_size=4,
    ),
    map_bytes_max=st.sampled_from([1, 700, 10**6]),
)
def test_replays_are_equal_after_any_cleanings(
    rounds: list[list[tuple[list[tuple[bytes, bytes | None]], Codec]]], map_bytes_max: int
) -> None:
    with tempfile.TemporaryDirectory(prefix="kafkaesque-clean-") as directory:
        log = Log.open(f"{directory}/log", KEYED, OpenFiles(20), clean=False)
        written: list[Record] = []
        for number, appended in enumerate(rounds):
            for pairs, codec in appended:
                base = put(log, *pairs, codec=codec)
                written += [
                    Record(Offset(base + i), TimestampMs(1000 + i), *pair)
                    for i, pair in enumerate(pairs)
                ]
            if log.log_end_offset:
                clean(log, 2000 + number * (DAY_MS // 2), map_bytes_max=map_bytes_max)
            found = records(log)
            assert table(found) == table(written)
            offsets = [record.offset for record in found]
            assert offsets == sorted(offsets)
            assert set(found) <= set(written)
        log.close()
        again = Log.open(f"{directory}/log", KEYED, OpenFiles(20), clean=True)
        assert records(again) == found
        again.close()


def test_log_with_more_keys_than_memory_is_cleaned_in_several_passes(log: Log) -> None:
    fill(log, 80, keys=20)
    before = records(log)
    gone = []
    while log.cleaned.offset < log.log_end_offset:
        clean(log, map_bytes_max=700)
        check_cleaned(log, before)
        gone.append(log.cleaned.offset)
    assert len(gone) > 2
    keys = [record.key for record in records(log)]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("codec", list(Codec))
def test_compressed_batches_are_compressed_again(log: Log, codec: Codec) -> None:
    for i in range(40):
        put(log, (b"same", b"x" * 50), (b"k%d" % i, b"y" * 50), codec=codec)
    before = records(log)
    clean(log)
    check_cleaned(log, before)
    assert {header.codec for header, found in batches(log) if found} == {codec}


def test_segments_that_became_small_are_merged(log: Log) -> None:
    fill(log, 200)
    clean(log)
    many = len(log.segments)
    fill(log, 10)
    clean(log)
    assert len(log.segments) < many / 2


def test_cleaning_a_clean_log_changes_nothing(log: Log) -> None:
    for i in range(40):
        put(log, (b"k%d" % i, b"x" * 100))
    log.roll()
    log.sync()
    job = job_of(log, segment_bytes=1)
    assert [result.facts for result in Cleaning(job, log.files).run()] == [None] * len(job.segments)


# -- tombstones ------------------------------------------------------------------------------------


def test_tombstone_is_kept_until_its_delete_horizon(log: Log) -> None:
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    clean(log, 2000, delete_retention_ms=500)
    assert [(r.key, r.value) for r in records(log)] == [(b"b", b"1"), (b"a", None)]
    assert [delete_horizon_ms(header) for header, _ in batches(log)] == [None, 2500]
    assert log.cleaned.next_horizon_ms == 2500
    clean(log, 2499, delete_retention_ms=500)
    assert len(records(log)) == 2
    clean(log, 2500, delete_retention_ms=500)
    assert [(r.key, r.value) for r in records(log)] == [(b"b", b"1")]
    assert log.cleaned.next_horizon_ms == -1


def test_record_after_its_keys_tombstone_is_kept(log: Log) -> None:
    put(log, (b"a", b"1"))
    put(log, (b"a", None))
    clean(log, 2000)
    put(log, (b"a", b"2"))
    clean(log, 2000 + 2 * DAY_MS)
    assert [(r.key, r.value) for r in records(log)] == [(b"a", b"2")]


# -- transactions and producers --------------------------------------------------------------------


def test_aborted_records_are_removed_and_their_marker_after_its_delete_horizon(log: Log) -> None:
    put(log, (b"a", b"old"))
    first = put(log, (b"a", b"void"), producer=(7, 0, 0), is_transactional=True)
    last = end_transaction(log, (7, 0), is_commit=False)
    put(log, (b"b", b"1"))
    aborted = ((7, first, last),)
    clean(log, 2000, aborted=aborted)
    assert [r.key for h, found in batches(log) if not h.is_control for r in found] == [b"a", b"b"]
    assert any(header.is_control for header, _ in batches(log))
    clean(log, 2001, aborted=aborted)  # its transaction has no records left
    assert any(delete_horizon_ms(h) for h, _ in batches(log) if h.is_control)
    log.roll()
    job = job_of(log, 2001 + DAY_MS, aborted=aborted)
    spent = [offset for result in Cleaning(job, log.files).run() for offset in result.spent_aborts]
    assert spent == [last]
    clean(log, 2001 + DAY_MS)
    assert not any(header.is_control for header, _ in batches(log))


def test_committed_transaction_keeps_its_marker_as_long_as_a_record(log: Log) -> None:
    put(log, (b"a", b"1"), producer=(7, 0, 0), is_transactional=True)
    end_transaction(log, (7, 0), is_commit=True)
    for now_ms in (2000, 2000 + 3 * DAY_MS):
        clean(log, now_ms)
        found = [(header.is_control, delete_horizon_ms(header)) for header, _ in batches(log)]
        assert found == [(False, None), (True, None)]


def test_last_batch_of_a_producer_is_kept_without_records(log: Log) -> None:
    for sequence in range(4):
        last = put(log, (b"a", b"x"), (b"b", b"x"), producer=(7, 3, sequence * 2))
    put(log, (b"a", b"y"), (b"b", b"y"))
    clean(log, producers=((7, 3, last),))
    left = [header for header, found in batches(log) if header.producer_id == 7]
    assert [(h.base_offset, h.record_count, h.last_sequence) for h in left] == [(last, 0, 7)]
    clean(log, producers=((7, 3, last),))
    assert [header for header, _ in batches(log) if header.producer_id == 7] == left
    clean(log)  # forgotten by its partition
    assert not [header for header, _ in batches(log) if header.producer_id == 7]


def test_end_of_a_cleaned_log_can_be_read_from_it(log: Log) -> None:
    for _ in range(30):
        put(log, (b"a", b"x" * 50))
    put(log, (b"b", b"x"))
    put(log, (b"b", b"y"))
    clean(log)
    put(log, (b"b", b"z"))
    clean(log)
    put(log, (b"b", None))
    clean(log, 2000 + DAY_MS)
    clean(log, 2000 + 3 * DAY_MS)
    assert [r.key for r in records(log)] == [b"a"]
    *_, (last, found) = batches(log)
    assert (last.next_offset, found) == (log.log_end_offset, [])


# -- readers ---------------------------------------------------------------------------------------


def test_reader_in_a_gap_continues_after_it(log: Log) -> None:
    fill(log)
    clean(log)
    left = [record.offset for record in records(log)]
    for offset in range(log.log_end_offset):
        result = log.read(Offset(offset), 1, limit_offset=log.log_end_offset)
        assert result.next_offset > offset
    assert left


def test_reader_of_a_segment_that_is_replaced_finds_the_new_one(log: Log) -> None:
    fill(log)
    headers = log.headers_from(Offset(0))
    first = next(headers)
    clean(log)
    rest = list(headers)
    assert [first.base_offset, *(h.base_offset for h in rest)] == sorted(
        {first.base_offset, *(h.base_offset for h in rest)}
    )
    assert rest[-1].next_offset == log.log_end_offset


def test_timestamps_are_found_among_kept_records(log: Log) -> None:
    for i in range(60):
        put(log, (b"k%d" % (i % 3), b"x" * 40), now_ms=1000 + 10 * i)
    clean(log)
    found = log.find_by_timestamp(TimestampMs(1000))
    assert found is not None
    assert found.offset == 57
    latest = log.max_timestamp()
    assert latest is not None
    assert (latest.timestamp, latest.offset) == (1590, 59)
    assert log.epoch_end(LeaderEpoch(1)) == (1, 60)


# -- failures --------------------------------------------------------------------------------------


def test_damaged_batch_ends_the_cleaning_and_is_left_alone(log: Log) -> None:
    fill(log)
    log.roll()
    log.sync()
    path = log.directory / f"{log.segments[2].base_offset:020d}.log"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptMessage, match="damaged at position"):
        list(Cleaning(job_of(log), log.files).run())
    assert path.read_bytes() == content


def test_segments_that_retention_deleted_meanwhile_are_not_brought_back(log: Log) -> None:
    fill(log)
    log.roll()
    log.sync()
    job = job_of(log)
    results = list(Cleaning(job, log.files).run())
    log.delete_before(log.segments[-1].base_offset)
    for result in results:
        assert result.facts is None or not log.replace_segments(
            result.bases, result.facts, job.token
        )
    assert log.size_bytes == 0


@pytest.mark.parametrize("call", ["fdatasync", "sync_directory", "rename"])
def test_disk_that_rejects_leaves_a_log_that_can_be_opened(tmp_path: Path, call: str) -> None:
    calls = FailingCalls()
    files = OpenFiles(20, calls)
    log = Log.open(tmp_path / "log", KEYED, files, clean=False)
    fill(log)
    before = records(log)
    log.roll()
    log.sync()
    job = job_of(log)
    results = [result for result in Cleaning(job, files).run() if result.facts is not None]
    calls.failing.add(call)
    with pytest.raises(StorageFailed):
        log.replace_segments(results[0].bases, results[0].facts, job.token)  # type: ignore[arg-type]
    calls.failing.clear()
    log.close(clean=False)
    again = Log.open(tmp_path / "log", KEYED, files, clean=False)
    check_cleaned(again, before)
    again.close()


# -- crashes ---------------------------------------------------------------------------------------

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100, retention_ms=-1)


def crashed(calls_until_cut: int, end: Callable[[SimulatedDisk], None], seed: int) -> bool:
    """Clean on a disk that fails at that call, then check what is left. True if it did not fail."""
    disk = SimulatedDisk(Random(seed), lambda: 1000)
    log = Log.open("/log", SMALL, OpenFiles(20, disk), clean=False)
    fill(log, 25)
    log.roll()
    log.sync()
    before, end_offset = records(log), log.log_end_offset
    disk.faults.calls_to_power_cut = calls_until_cut
    is_done = False
    try:
        clean(log)
        fill(log, 3)
        clean(log)
        is_done = True
    except PowerCut:
        end(disk)
    else:
        return is_done
    again = Log.open("/log", SMALL, OpenFiles(20, disk), clean=False)
    found = [record for record in records(again) if record.offset < end_offset]
    newer = [record for record in records(again) if record.offset >= end_offset]
    assert table(found + newer) == table(before + newer)
    assert [record for record in before if record in found] == found
    assert again.log_end_offset >= end_offset
    whole = records(again)
    clean(again)
    check_cleaned(again, whole)
    assert not [name for name in disk.list_names("/log") if name.endswith((".swap", ".cleaned"))]
    return is_done


def power_cut(disk: SimulatedDisk) -> None:
    disk.crash()


def killed(disk: SimulatedDisk) -> None:
    disk.process_died()
    disk.faults.is_off = False


@pytest.mark.parametrize("end", [power_cut, killed])
def test_crash_at_every_call_of_a_cleaning_loses_nothing(
    end: Callable[[SimulatedDisk], None],
) -> None:
    calls = 0
    while not crashed(calls, end, seed=calls):
        calls += 1
    assert calls > 60
