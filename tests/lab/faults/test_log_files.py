"""Replicas of one partition, compared byte for byte below the high watermark."""

from __future__ import annotations

from pathlib import Path

from kafkaesque.lab.faults.log_files import compare_replicas, read_replica
from kafkaesque.model.ids import LeaderEpoch, Offset, TimestampMs
from kafkaesque.records.batch import read_header, stamp
from kafkaesque.records.codec import Record, encode_batch


def write(directory: Path, *values: bytes, start: int = 0, segment: int | None = None) -> Path:
    """One batch of one record for each value, in one segment."""
    directory.mkdir(parents=True, exist_ok=True)
    data = bytearray()
    for number, value in enumerate(values, start):
        batch = bytearray(encode_batch([Record(Offset(0), TimestampMs(7), None, value)]))
        stamp(batch, read_header(batch), Offset(number), LeaderEpoch(1))
        data += batch
    name = start if segment is None else segment
    (directory / f"{name:020}.log").write_bytes(data)
    return directory


def findings(*directories: Path, high_watermark: int) -> list[str]:
    logs = {node: read_replica(directory) for node, directory in enumerate(directories)}
    return list(compare_replicas("orders-0", logs, high_watermark))


def test_equal_logs_in_different_segments_have_no_differences(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b", b"c")
    two = write(tmp_path / "1", b"a")
    write(tmp_path / "1", b"b", b"c", start=1)
    assert findings(one, two, high_watermark=3) == []


def test_uncommitted_batches_may_differ(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b")
    two = write(tmp_path / "1", b"a", b"x", b"y")
    assert findings(one, two, high_watermark=1) == []


def test_committed_batch_that_differs_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b", b"c")
    two = write(tmp_path / "1", b"a", b"x", b"c")
    (found,) = findings(one, two, high_watermark=3)
    assert "nodes 0 and 1 differ in 1 committed batch(es), the first at offset 1" in found


def test_replica_that_lacks_committed_batches_is_named(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b")
    two = write(tmp_path / "1", b"a")
    found = findings(one, two, high_watermark=2)
    assert "node 1 ends at 1, before the committed 2" in found[0]


def test_log_that_begins_later_is_compared_from_there(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b", b"c")
    two = write(tmp_path / "1", b"b", b"c", start=1)
    assert findings(one, two, high_watermark=3) == []


def test_truncated_batch_is_reported(tmp_path: Path) -> None:
    one = write(tmp_path / "0", b"a", b"b")
    two = write(tmp_path / "1", b"a", b"b")
    path = next(two.glob("*.log"))
    path.write_bytes(path.read_bytes()[:-3])
    assert any("node 1 cannot be read" in text for text in findings(one, two, high_watermark=1))
