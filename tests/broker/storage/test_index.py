"""The sparse index against a sorted list."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES, IndexDamaged, SparseIndex
from kafkaesque.broker.storage.open_files import OpenFile, OpenFiles

steps = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, 5000), st.integers(0, 3)), max_size=700
)


@settings(deadline=None, max_examples=25)
@given(steps=steps, flush_at=st.integers(0, 700), data=st.data())
def test_searches_find_the_last_entry_below(
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[int, int, int]],
    flush_at: int,
    data: st.DataObject,
) -> None:
    files = OpenFiles(4)
    index = SparseIndex(OpenFile(str(tmp_path_factory.mktemp("i") / "index")))
    entries = [(0, 0, -1)]
    for number, step in enumerate(steps):
        if number == flush_at:
            index.flush(files, threading.Lock())
        last = entries[-1]
        entries.append((last[0] + step[0], last[1] + step[1], last[2] + step[2]))
        index.append(*entries[-1])
    assert index.count == len(steps)
    deltas = [entry[0] for entry in entries]
    times = [entry[2] for entry in entries]
    for wanted in data.draw(st.lists(st.integers(0, deltas[-1] + 5), max_size=20)):
        assert index.floor_offset(files, wanted) == entries[bisect_right(deltas, wanted) - 1]
    for wanted in data.draw(st.lists(st.integers(0, times[-1] + 5), max_size=20)):
        found = index.floor_time(files, wanted)
        assert found == entries[max(0, bisect_left(times, wanted) - 1)]
    files.close()


def _flushed(path: Path, count: int) -> tuple[SparseIndex, OpenFiles]:
    files = OpenFiles(4)
    index = SparseIndex(OpenFile(str(path)))
    for i in range(1, count + 1):
        index.append(i, i * 100, i)
    index.flush(files, threading.Lock())
    return index, files


def test_flush_moves_entries_to_the_file_and_appends_later_ones(tmp_path: Path) -> None:
    index, files = _flushed(tmp_path / "index", 3)
    assert (tmp_path / "index").stat().st_size == 3 * ENTRY_SIZE_BYTES
    index.append(9, 900, 9)
    assert (index.flushed_count, index.count) == (3, 4)
    index.flush(files, threading.Lock())
    index.flush(files, threading.Lock())
    assert (index.flushed_count, index.count) == (4, 4)
    again = SparseIndex(OpenFile(str(tmp_path / "index")), 4)
    assert again.floor_offset(files, 100) == (9, 900, 9)


@pytest.mark.parametrize("damage", ["missing", "cut", "zeros", "flipped"])
def test_damage_is_detected_and_not_searched(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "index"
    index, files = _flushed(path, 10)
    content = bytearray(path.read_bytes())
    if damage == "missing":
        files.forget(index.file)
        path.unlink()
    elif damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "zeros":
        path.write_bytes(bytes(len(content)))
    else:
        content[-1] ^= 0x40
        path.write_bytes(content)
    with pytest.raises(IndexDamaged):
        index.floor_offset(files, 10)


def test_stale_entries_after_the_known_ones_are_overwritten(tmp_path: Path) -> None:
    _flushed(tmp_path / "index", 10)
    files = OpenFiles(4)
    index = SparseIndex(OpenFile(str(tmp_path / "index")), 4)
    assert index.floor_offset(files, 100) == (4, 400, 4)
    index.append(50, 5000, 7)
    index.flush(files, threading.Lock())
    assert index.floor_offset(files, 100) == (50, 5000, 7)
    assert index.floor_offset(files, 49) == (4, 400, 4)
