"""Compiled and Python appends do the same to a log of entries, whatever is appended and refused."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.broker.replication.test_entry_log import Rig
from tests.broker.storage.batches import make_batch
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.raft.types import LogIndex, Term
from kafkaesque.broker.replication.entry_index import BLOCK_ENTRIES
from kafkaesque.broker.replication.entry_log import BatchPayload, BatchRef, EntryLog
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.model.errors import InvariantBroken, StorageFailed
from kafkaesque.records.batch import read_header
from kafkaesque.records.native import pure

pytestmark = pytest.mark.skipif(
    pure(EntryLog.append_batch) is EntryLog.append_batch,
    reason="nothing is compiled: unset KAFKAESQUE_PURE, or apt install gcc python3-dev and make clean setup",
)
Append = Callable[..., BatchRef]
SIDES: dict[str, Append] = {
    "compiled": EntryLog.append_batch,
    "pure": pure(EntryLog.append_batch),
}


class Beside:
    """Two groups: batches are appended to one by the compiled method, to the other by the Python one."""

    def __init__(self, path: Path, config: LogConfig) -> None:
        self.path = path
        self.rigs = {name: Rig(path / name, config, FailingCalls()) for name in SIDES}
        self.each(lambda rig, _: rig.control(1))

    def each(self, do: Callable[[Rig, Append], Any]) -> Any:
        """What both say to it, which is the same, and they are the same behind it."""
        compiled, python = (self._outcome(rig, SIDES[name], do) for name, rig in self.rigs.items())
        assert compiled == python
        return compiled

    def _outcome(self, rig: Rig, append: Append, do: Callable[[Rig, Append], Any]) -> Any:
        try:
            told = do(rig, append)
        except (StorageFailed, InvariantBroken) as error:
            told = type(error), str(error).replace(str(rig.path), "")
        entries = rig.entries
        active = entries._active
        index = active and (active.tail, active.tail_number, active.end_position, active.end_offset)
        place = entries.last_index, entries.log.log_end_offset, entries.gate_position
        return told, type(told), place, index, rig.all()

    def stop(self) -> None:
        for rig in self.rigs.values():
            rig.stop(clean=False)
        files = [
            {path.name: path.read_bytes() for path in (self.path / name / "log").iterdir()}
            for name in SIDES
        ]
        assert files[0] == files[1]


def append_step(rig: Rig, append: Append, step: dict[str, Any]) -> BatchRef:
    entries = rig.entries
    term = entries.term_at(entries.last_index)
    offset = max(0, entries.next_offset + step["gap"])
    data = make_batch(
        offset, step["count"], epoch=term + step["epoch_ahead"], size_bytes=step["size_bytes"]
    )
    index = LogIndex(entries.last_index + 1 + step["skipped"])
    payload = BatchPayload(bytes(data), read_header(data))
    return append(entries, index, Term(term + step["term_ahead"]), payload, 1000)


def other(rig: Rig, step: str) -> None:
    entries, calls = rig.entries, rig.files.calls
    assert isinstance(calls, FailingCalls)
    if step == "control":
        rig.control(entries.term_at(entries.last_index) + 1)
    elif step == "closed gate":
        entries.gate_position = rig.journal.synced_position + 1
    elif step == "open gate":
        entries.gate_position = 0
    elif step == "full disk":
        calls.failing ^= {"pwrite"}
    elif step == "cut" and not calls.failing and entries.last_index > 1:
        entries.truncate_from(entries.last_index)
        rig.journal.sync()
    elif step == "sync":
        entries.log.sync()
        entries.save_places()


RARELY = st.sampled_from([0] * 19 + [1, -1])
APPENDS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 4),
        "size_bytes": st.sampled_from([20, 100, 300]),
        **dict.fromkeys(("gap", "skipped", "epoch_ahead", "term_ahead"), RARELY),
    }
)
ORDINARY = {"count": 1, "size_bytes": 20, "gap": 0, "skipped": 0, "epoch_ahead": 0, "term_ahead": 0}
OTHERS = st.sampled_from(["control", "closed gate", "open gate", "full disk", "cut", "sync"])


@settings(deadline=None, max_examples=80, phases=[Phase.explicit, Phase.generate])
@given(
    st.sampled_from([400, 3000, 100_000]),
    st.lists(st.one_of(*[APPENDS] * 9, OTHERS), min_size=5, max_size=40),
)
def test_any_appends_and_failures_leave_both_logs_alike(
    segment_bytes: int, steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        beside = Beside(Path(directory), LogConfig(segment_bytes=segment_bytes, retention_ms=-1))
        for step in steps:
            if isinstance(step, dict):
                beside.each(lambda rig, append, step=step: append_step(rig, append, step))
            else:
                beside.each(lambda rig, _, step=step: other(rig, step))
        beside.stop()


def test_blocks_are_written_at_the_same_entries(tmp_path: Path) -> None:
    beside = Beside(tmp_path, LogConfig(retention_ms=-1))
    for _ in range(3 * BLOCK_ENTRIES + 5):
        told = beside.each(lambda rig, append: append_step(rig, append, ORDINARY))
        assert told[1] is BatchRef
    beside.stop()


def test_ordinary_appends_need_no_python(tmp_path: Path) -> None:
    rig = Rig(tmp_path, LogConfig(retention_ms=-1))
    rig.control(1)
    for _ in range(3):
        rig.batch()
    called: list[str] = []
    sys.setprofile(
        lambda frame, event, _: event == "call" and called.append(frame.f_code.co_qualname)
    )
    try:
        for _ in range(20):
            rig.batch()
    finally:
        sys.setprofile(None)
    assert "Rig.batch" in called
    assert {"EntryLog.append_batch", "EntryLog._note", "EntryIndex.append"}.isdisjoint(called)
    rig.stop(clean=True)


def test_what_the_log_raises_is_passed_on_and_nothing_is_noted(tmp_path: Path) -> None:
    class Crash(BaseException):
        pass

    class CrashingCalls(FailingCalls):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            if self.failing:
                raise Crash
            return super().pwrite(fd, data, position)

    calls = CrashingCalls()
    rig = Rig(tmp_path, LogConfig(retention_ms=-1), calls)
    rig.control(1)
    for _ in range(3):
        rig.batch()
    before = rig.all()
    calls.failing = {"pwrite"}
    with pytest.raises(Crash):
        rig.batch()
    calls.failing = set()
    assert rig.all() == before
    rig.batch()
    assert rig.shape == "1:nbbbb"
