from __future__ import annotations

from kafkaesque.broker.storage.unsynced_tail import TAIL_SIZE_BYTES_MAX, Tailed, UnsyncedTail
from kafkaesque.model.ids import GroupId, Offset

BASE = Offset(0)


class Recorder:
    """A journal without batches."""

    def __init__(self) -> None:
        self.cuts: list[Offset] = []

    def record_cut(self, tail: UnsyncedTail, offset: Offset) -> None:
        self.cuts.append(offset)
        tail.note_cut(offset)

    def attach(self, group: GroupId, log: Tailed) -> None: ...

    def record_deleted(self, tail: UnsyncedTail) -> None: ...

    def record_closed(self, tail: UnsyncedTail) -> None: ...


def new_tail(end_offset: int = 0) -> UnsyncedTail:
    return UnsyncedTail(GroupId(1), Offset(end_offset), Recorder(), lambda share: None)


def test_share_has_the_batches_after_the_synced_offset() -> None:
    tail = new_tail()
    for end_offset in (2, 5, 6):
        tail.append(memoryview(b"x" * end_offset), BASE, Offset(end_offset), BASE)
    share = tail.take(Offset(2))
    assert share is not None
    assert [len(batch.data) for batch in share.batches] == [5, 6]
    assert (share.end_offset, share.size_bytes) == (6, 11)
    again = tail.take(Offset(2))
    assert again is not None
    assert again.batches == share.batches


def test_memory_of_the_caller_is_not_kept() -> None:
    tail = new_tail()
    buffer = bytearray(b"abc")
    tail.append(buffer, BASE, Offset(1), BASE)
    buffer[:] = b"xyz"
    share = tail.take(Offset(0))
    assert share is not None
    assert share.batches[0].data == b"abc"


def test_log_with_much_to_sync_has_no_share_until_its_file_is_synced() -> None:
    tail = new_tail()
    tail.append(b"a", BASE, Offset(1), BASE)
    tail.append(bytes(TAIL_SIZE_BYTES_MAX), BASE, Offset(2), BASE)
    assert tail.take(Offset(0)) is None
    tail.append(b"b", BASE, Offset(3), BASE)
    assert tail.take(Offset(1)) is None
    share = tail.take(Offset(2))
    assert share is not None
    assert [batch.data for batch in share.batches] == [b"b"]


def test_log_with_unsynced_records_of_before_has_no_share() -> None:
    tail = new_tail(10)
    assert tail.take(Offset(7)) is None
    assert tail.take(Offset(10)) is not None


def test_share_is_void_after_a_cut() -> None:
    tail = new_tail()
    tail.append(b"a", BASE, Offset(1), BASE)
    tail.append(b"b", BASE, Offset(2), BASE)
    share = tail.take(Offset(0))
    assert share is not None
    assert share.is_current
    tail.cut(Offset(1))
    assert not share.is_current
    after = tail.take(Offset(1))
    assert after is not None
    assert after.batches == ()


def test_log_that_is_synced_by_itself_keeps_no_more_than_is_not_synced() -> None:
    tail = new_tail()
    half = bytes(TAIL_SIZE_BYTES_MAX // 2)
    for end_offset in range(1, 10):
        tail.append(half, BASE, Offset(end_offset), Offset(end_offset - 1))
    share = tail.take(Offset(8))
    assert share is not None
    assert (len(share.batches), share.end_offset, share.size_bytes) == (1, 9, len(half))


def test_durable_batches_are_dropped_at_the_next_append() -> None:
    tail = new_tail()
    for end_offset in range(1, 6):
        tail.append(b"x", BASE, Offset(end_offset), Offset(0))
    tail.append(b"x", BASE, Offset(6), Offset(5))
    assert len(tail._batches) == 1
