"""A log against a list, through any sequence of operations, crashes included."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.broker.storage.batches import make_batch

from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles, SystemCalls
from kafkaesque.model.errors import OffsetOutOfRange
from kafkaesque.model.ids import Offset
from kafkaesque.records.batch import BatchHeader, iter_batches, read_header


class WitnessCalls(SystemCalls):
    """Records the size of each file at its last sync."""

    def __init__(self) -> None:
        self.durable_bytes: dict[str, int] = {}

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self.durable_bytes[os.readlink(f"/proc/self/fd/{fd}")] = os.fstat(fd).st_size


class LogMachine(RuleBasedStateMachine):
    """`batches` is the model: header and bytes of every batch that the log has to hold."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkaesque-log-"))
        self.calls = WitnessCalls()
        self.files = OpenFiles(3, self.calls)
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.start = 0
        self.end = 0
        self.synced = 0
        self.epoch = 0

    @initialize(
        segment_bytes=st.integers(1, 2000),
        interval_bytes=st.integers(0, 500),
        segment_ms=st.integers(20, 1000),
        preallocate_bytes=st.sampled_from([0, 300, 1000]),
    )
    def open(
        self, segment_bytes: int, interval_bytes: int, segment_ms: int, preallocate_bytes: int
    ) -> None:
        self.config = LogConfig(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval_bytes,
            segment_ms=segment_ms,
            retention_ms=50,
            preallocate_bytes=preallocate_bytes,
            preallocate_after_bytes=0,
        )
        self.log = Log.open(self.directory, self.config, self.files, clean=False)

    @rule(
        count=st.integers(1, 5),
        size_bytes=st.integers(0, 300),
        timestamp=st.integers(0, 200),
        gap=st.sampled_from([0, 0, 0, 7]),
        new_epoch=st.booleans(),
    )
    def append(
        self, count: int, size_bytes: int, timestamp: int, gap: int, new_epoch: bool
    ) -> None:
        self.epoch += new_epoch
        data = make_batch(
            self.end + gap, count, timestamp=timestamp, size_bytes=size_bytes, epoch=self.epoch
        )
        header = read_header(data)
        self.log.append(data, header, timestamp)
        self.batches.append((header, bytes(data)))
        self.end = header.next_offset

    @rule()
    def sync(self) -> None:
        assert self.log.sync() == self.end
        self.synced = self.end

    @rule(at=st.integers(0, 100), max_bytes=st.integers(1, 2000), limit=st.integers(0, 100))
    def read(self, at: int, max_bytes: int, limit: int) -> None:
        offset = self.start + (self.end - self.start) * at // 100
        limit_offset = self.start + (self.end - self.start) * limit // 100
        result = self.log.read(Offset(offset), max_bytes, limit_offset=Offset(limit_offset))
        records = bytes(result.records)
        wanted = [
            (header, data)
            for header, data in self.batches
            if header.next_offset > offset and header.base_offset < limit_offset
        ]
        got = [header for _, header in iter_batches(records)]
        assert records == b"".join(data for _, data in wanted[: len(got)])
        assert result.next_offset == (got[-1].next_offset if got else offset)
        if offset < limit_offset and wanted:
            assert got
            assert len(got) == 1 or len(records) <= max_bytes
        else:
            assert not got

    @rule(timestamp=st.integers(0, 210))
    def find_by_timestamp(self, timestamp: int) -> None:
        found = self.log.find_by_timestamp(timestamp)
        expected = [
            (header.base_timestamp + i, header.base_offset + i, header.leader_epoch)
            for header, _ in self.batches
            for i in range(header.record_count)
            if header.base_timestamp + i >= timestamp and header.base_offset + i >= self.start
        ]
        assert found == (expected[0] if expected else None)

    @rule(at=st.integers(0, 100))
    def truncate(self, at: int) -> None:
        offset = self.start + (self.end - self.start) * at // 100
        self.log.truncate_to(Offset(offset))
        if offset >= self.end:
            return
        cut = [header for header, _ in self.batches if header.next_offset > offset]
        self.end = max(self.start, min([offset, *(header.base_offset for header in cut)]))
        self.batches = [b for b in self.batches if b[0].next_offset <= offset]
        self.synced = self.end
        self.epoch += 1

    @precondition(lambda self: self.end > self.start)
    @rule(at=st.integers(0, 100))
    def delete_before(self, at: int) -> None:
        offset = self.start + (self.end - self.start) * at // 100
        self.log.delete_before(Offset(offset))
        self.start = offset
        self.synced = max(self.synced, self.log.synced_offset)
        self._forget_deleted()

    @rule(now_ms=st.integers(0, 300))
    def apply_retention(self, now_ms: int) -> None:
        before = self.log.segments
        deleted = self.log.apply_retention(now_ms)
        for facts in before[: deleted.segments]:
            assert now_ms - facts.max_timestamp > 50
        if deleted.segments < len(before) and before[deleted.segments].size_bytes:
            assert now_ms - before[deleted.segments].max_timestamp <= 50
        self.start = max(self.start, self.log.log_start_offset)
        assert self.start in (self.end, *(facts.base_offset for facts in before), self.start)
        self.synced = max(self.synced, self.log.synced_offset)
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        """Deleted segments are gone; a batch with a record that is left stays whole."""
        self.batches = [b for b in self.batches if b[0].next_offset > self.start]

    @rule()
    def reopen_clean(self) -> None:
        facts = self.log.segments
        self.log.close(clean=True)
        self.log = Log.open(self.directory, self.config, self.files, clean=True)
        assert self.log.segments == facts
        self.synced = self.end

    @rule(torn_bytes=st.integers(0, 80))
    def crash(self, torn_bytes: int) -> None:
        """kill -9: the kernel has all that was written, perhaps with part of another batch."""
        active = self.directory / f"{self.log.segments[-1].base_offset:020d}.log"
        self.log.close(clean=False)
        if torn_bytes and active.exists():
            with open(active, "ab") as file:
                file.write(make_batch(self.end)[:torn_bytes])
        self.log = Log.open(self.directory, self.config, self.files, clean=False)

    @rule(
        kept=st.integers(0, 100),
        filling=st.sampled_from([b"", b"\0", b"\xa5"]),
        point=st.sampled_from(["kept", "torn", "lost"]),
    )
    def power_cut(self, kept: int, filling: bytes, point: str) -> None:
        """Loses part of the unsynced data: files get shorter, with empty or foreign pages in them."""
        self.log.close(clean=False)
        for path in self.directory.glob("*.log"):
            size_bytes = path.stat().st_size
            durable_bytes = min(self.calls.durable_bytes.get(str(path), 0), size_bytes)
            left_bytes = durable_bytes + (size_bytes - durable_bytes) * kept // 100
            with open(path, "r+b") as file:
                file.truncate(left_bytes)
                file.seek(left_bytes)
                file.write(filling * (size_bytes - left_bytes))
        for path in self.directory.glob("*.index"):
            path.write_bytes(filling * path.stat().st_size)
        sync_point = self.directory / "sync-point"
        if sync_point.exists() and point != "kept":
            os.truncate(sync_point, 30)
            if point == "lost":
                sync_point.unlink()
        self.log = Log.open(self.directory, self.config, self.files, clean=False)
        self.end = self.log.log_end_offset
        # An end offset after a cut gap is recorded only in the sync point, which may be lost.
        ends = [h.next_offset for h, _ in self.batches if h.next_offset <= self.synced]
        assert self.end >= max(ends, default=self.start)
        self.synced = min(self.synced, self.end)
        kept_count = len([1 for header, _ in self.batches if header.next_offset <= self.end])
        del self.batches[kept_count:]

    @rule()
    def lose_indexes(self) -> None:
        self.log.close(clean=True)
        for path in self.directory.glob("*.index"):
            path.unlink()
        self.log = Log.open(self.directory, self.config, self.files, clean=False)
        self.synced = self.end

    @invariant()
    def log_is_the_model(self) -> None:
        log = getattr(self, "log", None)
        if log is None:
            return
        assert (log.log_start_offset, log.log_end_offset) == (self.start, self.end)
        assert log.synced_offset <= self.end
        assert list(log.headers_from(Offset(self.start))) == [header for header, _ in self.batches]
        for outside in (self.start - 1, self.end + 1):
            with pytest.raises(OffsetOutOfRange):
                log.read(Offset(outside), 1, limit_offset=Offset(self.end))
        for header, _ in self.batches[-3:]:
            if header.last_offset >= self.start:
                assert log.epoch_at(header.last_offset) == header.leader_epoch
        assert len(self.files) <= 3

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close(clean=False)
        shutil.rmtree(self.directory)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
