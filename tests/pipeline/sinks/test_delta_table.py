"""Delta tables without Spark: files, commits, batch identity, maintenance."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

pa = pytest.importorskip(
    "pyarrow", reason="pyarrow is missing: make setup, or pip install kafkaesque-platform[spark]"
)
deltalake = pytest.importorskip(
    "deltalake",
    reason="deltalake is missing: make setup, or pip install kafkaesque-platform[spark]",
)

from kafkaesque.pipeline.errors import CheckpointLost, TableRefused  # noqa: E402
from kafkaesque.pipeline.sinks.delta_files import FileWriter  # noqa: E402
from kafkaesque.pipeline.sinks.delta_table import (  # noqa: E402
    BatchIdentity,
    commit,
    ensure_table,
    is_committed,
    maintain,
    refuse_other_checkpoint,
)

SCHEMA = pa.schema([("day", pa.date32()), ("offset", pa.int64()), ("text", pa.string())])
DAYS = [date(2026, 11, 1), date(2026, 11, 2), None]


def rows(offsets: range) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {
            "day": [DAYS[offset % 3] for offset in offsets],
            "offset": list(offsets),
            "text": [f"row {offset}" for offset in offsets],
        },
        schema=SCHEMA,
    )


def append(path: Path, offsets: range, identity: BatchIdentity | None, by=("day",)) -> bool:
    ensure_table(path, SCHEMA, by)
    return commit(path, FileWriter(path, by).write(iter([rows(offsets)])), identity)


def offsets_in(path: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(path).to_pyarrow_table()["offset"].to_pylist())


def batch(number: int, checkpoint: str = "c1") -> BatchIdentity:
    return BatchIdentity("query", checkpoint, number)


def test_rows_keep_their_partition_values_including_null(tmp_path: Path) -> None:
    assert append(tmp_path, range(9), batch(0))
    table = deltalake.DeltaTable(tmp_path).to_pyarrow_table()
    found = {(row["day"], row["offset"]) for row in table.to_pylist()}
    assert found == {(DAYS[offset % 3], offset) for offset in range(9)}


def test_committed_batch_is_not_written_again(tmp_path: Path) -> None:
    assert append(tmp_path, range(3), batch(0))
    assert append(tmp_path, range(3, 6), batch(1))
    assert not append(tmp_path, range(3, 6), batch(1))
    assert not append(tmp_path, range(3), batch(0))
    assert offsets_in(tmp_path) == list(range(6))


def test_empty_batch_is_committed(tmp_path: Path) -> None:
    append(tmp_path, range(0), batch(4))
    assert is_committed(tmp_path, batch(4))
    assert not is_committed(tmp_path, batch(5))


def test_files_in_no_commit_are_not_read_and_are_vacuumed(tmp_path: Path) -> None:
    """A killed batch leaves such files. A Delta reader never sees them."""
    append(tmp_path, range(3), batch(0))
    FileWriter(tmp_path, ("day",)).write(iter([rows(range(3, 6))]))
    assert offsets_in(tmp_path) == [0, 1, 2]
    done = maintain(tmp_path, keep_hours=0)
    assert done.files_removed_from_disk >= 3
    assert offsets_in(tmp_path) == [0, 1, 2]


def test_small_files_are_merged_and_expired_rows_deleted(tmp_path: Path) -> None:
    for number in range(4):
        append(tmp_path, range(number * 3, number * 3 + 3), batch(number))
    done = maintain(tmp_path, expired="day < DATE '2026-11-02'")
    assert (done.files_before, done.files_after, done.rows_expired) == (8, 2, 4)
    assert offsets_in(tmp_path) == [offset for offset in range(12) if offset % 3]
    assert is_committed(tmp_path, batch(3))


def test_new_column_is_added_and_null_in_old_rows(tmp_path: Path) -> None:
    append(tmp_path, range(2), batch(0), by=())
    wider = SCHEMA.append(pa.field("extra", pa.int32()))
    ensure_table(tmp_path, wider, ())
    more = pa.RecordBatch.from_pydict(
        {"day": [None], "offset": [2], "text": ["x"], "extra": [7]}, schema=wider
    )
    commit(tmp_path, FileWriter(tmp_path, ()).write(iter([more])), batch(1))
    table = deltalake.DeltaTable(tmp_path).to_pyarrow_table().sort_by("offset")
    assert table["extra"].to_pylist() == [None, None, 7]


def test_column_with_another_type_is_rejected(tmp_path: Path) -> None:
    append(tmp_path, range(2), batch(0), by=())
    other = pa.schema([("day", pa.date32()), ("offset", pa.string()), ("text", pa.string())])
    with pytest.raises(TableRefused, match="column offset"):
        ensure_table(tmp_path, other, ())


def test_other_partition_columns_are_rejected(tmp_path: Path) -> None:
    append(tmp_path, range(2), batch(0))
    with pytest.raises(TableRefused, match="partitioned by"):
        ensure_table(tmp_path, SCHEMA, ())


def test_only_the_query_with_a_lost_checkpoint_is_rejected(tmp_path: Path) -> None:
    append(tmp_path, range(2), batch(0))
    refuse_other_checkpoint(tmp_path, "query", "c1")
    refuse_other_checkpoint(tmp_path, "another", "c9")
    with pytest.raises(CheckpointLost, match="write its rows twice"):
        refuse_other_checkpoint(tmp_path, "query", "c2")


def test_two_queries_share_a_table_without_skipping_each_other(tmp_path: Path) -> None:
    append(tmp_path, range(3), BatchIdentity("a", "1", 5))
    assert append(tmp_path, range(3, 6), BatchIdentity("b", "2", 0))
    assert offsets_in(tmp_path) == list(range(6))
