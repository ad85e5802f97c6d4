"""Compiled and Python appends do the same to a log, whatever is appended and whatever fails."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.broker.storage.batches import make_batch
from tests.broker.storage.failing import FailingCalls

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.index import ENTRY_SIZE_BYTES
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import FileStat, OpenFile, OpenFiles
from kafkaesque.model.errors import InvariantBroken, StorageFailed
from kafkaesque.records.batch import BatchHeader, read_header
from kafkaesque.records.native import pure

compiled_only = pytest.mark.skipif(
    pure(Log.append) is Log.append,
    reason="nothing is compiled: unset KAFKAESQUE_PURE, or apt install gcc python3-dev and make clean setup",
)
pure_append: Callable[..., Any] = pure(Log.append)
VALUES = (int, bool, type(None))
LEFT_OUT = {"_directory", "_files", "_lock", "_slow", "_point_file", "_pinned_fd", "_reported"}
"""Not the same in two logs beside each other, or nothing that an append changes."""


class CountingCalls(FailingCalls):
    """Some writes are cut short."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0
        self.short_bytes: int | None = None

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
        self.writes += 1
        if self.short_bytes is not None:
            data, self.short_bytes = memoryview(data)[: self.short_bytes], None
        return super().pwrite(fd, data, position)

    def stat(self, path: str) -> FileStat:
        """Two logs beside each other are not written in the same millisecond."""
        return FileStat(super().stat(path).size_bytes, modified_ms=1000)


def neutral(text: str) -> str:
    """Without the name of the directory that tells the two logs apart."""
    return re.sub("(compiled|pure)", "log", text)


def slots_of(thing: Any) -> Any:
    """All that is kept in the slots of `thing` and of what it refers to."""
    if isinstance(thing, str):
        return neutral(thing)
    if isinstance(thing, VALUES):
        return thing
    if isinstance(thing, OpenFile):
        return Path(thing.path).name
    if isinstance(thing, dict):
        return dict(thing)
    if isinstance(thing, list | tuple):
        return [slots_of(item) for item in thing]
    names = {name for cls in type(thing).__mro__ for name in getattr(cls, "__slots__", ())}
    if not names:
        return list(thing) if hasattr(thing, "typecode") else repr(thing)
    return {name: slots_of(getattr(thing, name)) for name in sorted(names - LEFT_OUT)}


class Beside:
    """Two logs: one is appended to by the compiled method, the other by the Python one."""

    def __init__(self, directory: Path, config: LogConfig) -> None:
        self.sides = []
        for name, append in (("compiled", Log.append), ("pure", pure_append)):
            calls = CountingCalls()
            log = Log.open(directory / name, config, OpenFiles(8, calls), clean=False)
            self.sides.append((log, calls, append))

    def each(self, do: Callable[[Log, CountingCalls, Callable[..., Any]], Any]) -> list[Any]:
        outcomes = []
        for log, calls, append in self.sides:
            try:
                outcomes.append(do(log, calls, append))
            except (StorageFailed, InvariantBroken) as error:
                outcomes.append((type(error), neutral(str(error))))
        assert outcomes[0] == outcomes[1]
        compiled, python = (slots_of(log) for log, _, _ in self.sides)
        assert compiled == python
        return outcomes

    def compare_files(self) -> None:
        compiled, python = (log.directory for log, _, _ in self.sides)
        names = sorted(path.name for path in python.iterdir() if path.is_file())
        assert sorted(path.name for path in compiled.iterdir() if path.is_file()) == names
        for name in names:
            assert (compiled / name).read_bytes() == (python / name).read_bytes()


def batch_at(log: Log, step: dict[str, Any]) -> tuple[memoryview, BatchHeader]:
    offset = max(0, log.log_end_offset + step["gap"])
    data = make_batch(
        offset,
        step["count"],
        timestamp=step["timestamp"],
        epoch=step["epoch"],
        size_bytes=step["size_bytes"],
    )
    return memoryview(data), read_header(data)


APPENDS = st.fixed_dictionaries(
    {
        "count": st.integers(1, 4),
        "size_bytes": st.sampled_from([0, 20, 100, 700]),
        "timestamp": st.sampled_from([-1, 50, 1000, 1000, 1001, 1002, 5000]),
        "epoch": st.sampled_from([0] * 6 + [1, 2]),
        "gap": st.sampled_from([0] * 9 + [9, -1]),
        "now_ms": st.sampled_from([0, 1000, 9000]),
        "wrong_size": st.sampled_from([False] * 19 + [True]),
    }
)
OTHERS = st.sampled_from(
    ["sync", "full disk", "short write", "fail for good", "truncate", "unpin", "settings"]
)
SETTINGS = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from([600, 3000, 100_000, 100_000]),
    segment_ms=st.sampled_from([40, 10_000, 10_000]),
    index_interval_bytes=st.sampled_from([0, 150, 150, 4096]),
    segment_index_bytes=st.sampled_from([60, 10_000, 10_000]),
    retention_ms=st.just(-1),
    runway_bytes=st.sampled_from([0, 400, 2000]),
    runway_from_bytes=st.sampled_from([0, 500]),
)


@compiled_only
@settings(deadline=None, max_examples=100, phases=[Phase.explicit, Phase.generate])
@given(
    SETTINGS,
    SETTINGS,
    st.lists(st.one_of(*[APPENDS] * 9, OTHERS), min_size=5, max_size=40),
)
def test_any_appends_and_failures_leave_both_logs_alike(
    config: LogConfig, later: LogConfig, steps: list[Any]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        beside = Beside(Path(directory), config)
        for step in steps:
            if isinstance(step, dict):
                beside.each(lambda log, _, append, step=step: append_step(log, append, step))
            else:
                beside.each(lambda log, calls, append, step=step: other(log, calls, step, later))
        beside.compare_files()


def append_step(log: Log, append: Callable[..., Any], step: dict[str, Any]) -> Any:
    data, header = batch_at(log, step)
    return append(log, data[:-1] if step["wrong_size"] else data, header, step["now_ms"])


def other(log: Log, calls: CountingCalls, step: str, later: LogConfig) -> None:
    if step == "sync":
        log.sync()
    elif step == "full disk":
        calls.failing ^= {"pwrite"}
    elif step == "short write":
        calls.short_bytes = 5
    elif step == "fail for good":
        calls.failing ^= {"fdatasync"}
    elif step == "truncate":
        log.truncate_to(max(log.log_start_offset, log.log_end_offset - 2))  # type: ignore[arg-type,call-overload]
    elif step == "unpin":
        log._chain.active.unpin(log.files)
    else:
        log.set_config(later)


STEP = {"count": 1, "size_bytes": 40, "timestamp": 1000, "epoch": 0, "gap": 0}
STEP |= {"now_ms": 0, "wrong_size": False}
BATCH_BYTES = len(make_batch(0, 1, size_bytes=40))
EDGES = {
    "index_interval_bytes": [BATCH_BYTES - 1, BATCH_BYTES, BATCH_BYTES + 1, 2 * BATCH_BYTES],
    "segment_bytes": [6 * BATCH_BYTES - 1, 6 * BATCH_BYTES, 6 * BATCH_BYTES + 1],
    "segment_ms": [4, 5, 6],
    "segment_index_bytes": [4 * ENTRY_SIZE_BYTES - 1, 4 * ENTRY_SIZE_BYTES],
    "runway_bytes": [2 * BATCH_BYTES - 1, 2 * BATCH_BYTES, 4 * BATCH_BYTES],
}


@compiled_only
@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in EDGES.items() for v in vs])
@pytest.mark.parametrize(
    "change", [{}, {"epoch": 1}, {"timestamp": -1, "now_ms": 1005}, {"gap": 3}]
)
def test_limit_is_met_at_the_same_batch(
    tmp_path: Path, name: str, value: int, change: dict[str, int]
) -> None:
    ordinary = {"index_interval_bytes": 1, "runway_bytes": 0, "runway_from_bytes": 0}
    beside = Beside(tmp_path, LogConfig(**{**ordinary, name: value}))
    for number in range(14):
        step = STEP | {"timestamp": 1000 + number} | (change if number % 5 == 4 else {})
        beside.each(lambda log, _, append, step=step: append_step(log, append, step))
    beside.compare_files()


@compiled_only
@pytest.mark.parametrize("segment_batches", [9, 10, 11, 12, 16])
@pytest.mark.parametrize("failing", [None, "full disk", "short write"])
def test_runway_is_laid_at_the_same_batches(
    tmp_path: Path, segment_batches: int, failing: str | None
) -> None:
    config = LogConfig(
        segment_bytes=segment_batches * BATCH_BYTES + 7,
        index_interval_bytes=1,
        runway_bytes=4 * BATCH_BYTES,
        runway_from_bytes=0,
    )
    beside = Beside(tmp_path, config)
    for number in range(40):
        if failing == "short write" or (failing is not None and number % 7 < 2):
            beside.each(lambda log, calls, _: other(log, calls, failing, config))
        beside.each(lambda log, _, append: append_step(log, append, STEP))
    beside.compare_files()


@compiled_only
def test_ordinary_appends_need_no_python_and_one_write_each(tmp_path: Path) -> None:
    beside = Beside(tmp_path, LogConfig(index_interval_bytes=150))
    step = STEP | {"size_bytes": 200}
    log, calls, append = beside.sides[0]
    for _ in range(4):
        append_step(log, append, step)
    calls.writes = 0
    called = []
    sys.setprofile(lambda frame, event, _: event == "call" and called.append(frame.f_code.co_name))
    try:
        for _ in range(20):
            append_step(log, append, step)
    finally:
        sys.setprofile(None)
    assert calls.writes == 20
    assert {"note", "_repair"}.isdisjoint(called)
    assert called.count("append") == 0


@compiled_only
def test_what_is_no_refusal_of_the_disk_is_passed_on_and_the_lock_given_back(
    tmp_path: Path,
) -> None:
    class Crash(BaseException):
        pass

    class CrashingCalls(CountingCalls):
        def pwrite(self, fd: int, data: bytes | bytearray | memoryview, position: int) -> int:
            if self.failing:
                raise Crash
            return super().pwrite(fd, data, position)

    calls = CrashingCalls()
    log = Log.open(tmp_path, LogConfig(), OpenFiles(8, calls), clean=False)
    for _ in range(3):
        data = make_batch(log.log_end_offset)
        log.append(memoryview(data), read_header(data), 0)
    before = slots_of(log)
    calls.failing = {"pwrite"}
    data = make_batch(log.log_end_offset)
    with pytest.raises(Crash):
        log.append(memoryview(data), read_header(data), 0)
    assert not log._lock.locked()
    assert slots_of(log) == before


@compiled_only
def test_nothing_is_kept_of_what_was_appended(tmp_path: Path) -> None:
    log = Log.open(tmp_path, LogConfig(), OpenFiles(8), clean=False)

    def grow() -> list[int]:
        for _ in range(300):
            data = make_batch(log.log_end_offset)
            header = read_header(data)
            log.append(data, header, 0)
            assert sys.getrefcount(header) == 2
            data.append(0)  # raises if somebody still looks at it
        chain = log._chain
        held = [log, chain, chain.active, chain.active.index, log._lock, chain.config]
        return [sys.getrefcount(thing) for thing in held]

    assert grow() == grow()


@compiled_only
@pytest.mark.parametrize("count", [0, 2])
def test_append_without_its_arguments_is_refused_as_in_python(tmp_path: Path, count: int) -> None:
    log = Log.open(tmp_path, LogConfig(), OpenFiles(8), clean=False)
    with pytest.raises(TypeError):
        log.append(*[b""] * count)  # type: ignore[arg-type]
