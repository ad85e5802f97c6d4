"""Finding batches to damage in segments, and the damage itself."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from kafkaesque.broker.storage.checkpoint import SYNC_POINT_NAME, SyncPoint, encode_sync_point
from kafkaesque.broker.storage.rules.segment_facts import SegmentFacts
from kafkaesque.lab.faults.checks.payload import encode_value
from kafkaesque.lab.faults.log_files import segment_paths, stored_batches, synced_position
from kafkaesque.lab.faults.runs.disk_faults import flip, tear
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import read_header, stamp
from kafkaesque.records.codec import Record, encode_batch


def batch(base_offset: int, *values: bytes) -> bytes:
    records = [Record(Offset(i), TimestampMs(1), None, value) for i, value in enumerate(values)]
    data = bytearray(encode_batch(records))
    stamp(data, read_header(data), Offset(base_offset), LeaderEpoch(0))
    return bytes(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with a closed segment of one batch and an active one of two, the second not synced."""
    place = tmp_path / "topics" / "id" / "0"
    place.mkdir(parents=True)
    (place / f"{0:020d}.log").write_bytes(batch(0, encode_value(5, 0, 40), encode_value(5, 1, 40)))
    synced = batch(2, encode_value(5, 2, 40))
    (place / f"{2:020d}.log").write_bytes(synced + batch(3, encode_value(5, 3, 40)))
    facts = SegmentFacts(Offset(2), size_bytes=len(synced))
    point = SyncPoint(Offset(3), facts, (LeaderEpoch(0), Offset(0)))
    (place / SYNC_POINT_NAME).write_bytes(encode_sync_point(point))
    return tmp_path


def test_durable_batches_are_found_with_their_key_and_offsets(log: Path) -> None:
    closed, active = segment_paths(log)
    assert synced_position(closed) == closed.stat().st_size
    assert 0 < synced_position(active) < active.stat().st_size
    assert [b[3:] for b in stored_batches(closed)] == [(5, 0, 1)]
    assert [b[3:] for b in stored_batches(active)] == [(5, 2, 2)]


def test_log_without_a_sync_point_has_nothing_durable(log: Path) -> None:
    closed, active = segment_paths(log)
    (closed.parent / SYNC_POINT_NAME).unlink()
    assert synced_position(closed) == synced_position(active) == 0
    assert stored_batches(closed) == []


def test_foreign_and_damaged_batches_are_skipped(log: Path) -> None:
    closed, active = segment_paths(log)
    closed.write_bytes(batch(0, b"a committed offset of some group"))
    assert stored_batches(closed) == []
    data = bytearray(active.read_bytes())
    data[16] = 0
    active.write_bytes(data)
    assert stored_batches(active) == []


def test_flip_changes_one_bit_of_the_batch(log: Path) -> None:
    closed, _ = segment_paths(log)
    before = closed.read_bytes()
    found = stored_batches(closed)[0]
    flip(found, 13)
    after = closed.read_bytes()
    assert after[1] == before[1] ^ (1 << 5)
    assert after[:1] + before[1:2] + after[2:] == before
    flip(found, 13)
    assert closed.read_bytes() == before


@pytest.mark.parametrize("seed", range(20))
def test_tear_keeps_synced_bytes(log: Path, seed: int) -> None:
    closed, active = segment_paths(log)
    synced = synced_position(active)
    before = closed.read_bytes(), active.read_bytes()[:synced]
    rng = Random(seed)
    tear(closed, synced_position(closed), rng)
    assert tear(active, synced, rng) > 0
    assert (closed.read_bytes(), active.read_bytes()[:synced]) == before
