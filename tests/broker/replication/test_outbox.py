"""The send queue of a link: its frames and its bound."""

from __future__ import annotations

from kafkaesque.broker.raft.messages import Append, InstallSnapshot, TimeoutNow
from kafkaesque.broker.raft.types import Entry, EntryKind, LogIndex, Membership, Snapshot, Term
from kafkaesque.broker.replication.rules.outbox import (
    FRAME_BYTES_SOFT,
    FRAME_ELEMENTS_SOFT,
    LinkOutbox,
)
from kafkaesque.broker.replication.rules.peer_codec import (
    FRAME_BYTES_MAX,
    Outcome,
    Part,
    PeerAnswer,
    PeerCall,
    PeerPost,
    decode_frame,
)
from kafkaesque.model.ids import GroupId, MemberId

ONE, TWO = MemberId(1), MemberId(2)
SMALL = TimeoutNow(ONE, TWO, Term(1))
GROUP = GroupId(16)


def add_batch(outbox: LinkOutbox, size_bytes: int) -> bool:
    entry = Entry(LogIndex(1), Term(1), EntryKind.DATA, size_bytes, None)
    append = Append(ONE, TWO, Term(1), LogIndex(0), Term(0), LogIndex(0), (entry,))
    return outbox.add_message(GROUP, append, [bytes(size_bytes)])


def frames_of(outbox: LinkOutbox) -> list[list[Part]]:
    frames = []
    while (frame := outbox.take_frame()) is not None:
        data = b"".join(frame[0])
        assert len(data) == frame[1]
        frames.append(decode_frame(memoryview(data)[4:]))
    return frames


def test_all_kinds_share_a_frame_in_order() -> None:
    outbox = LinkOutbox(1_000_000)
    assert not outbox
    parts = [PeerCall(1, 2, b"call"), PeerAnswer(1, Outcome.BUSY, b""), PeerPost(3, b"post")]
    outbox.add_message(GROUP, SMALL, ())
    for part in parts:
        assert outbox.add(part)
    assert outbox

    assert frames_of(outbox) == [[(GROUP, SMALL), *parts]]
    assert not outbox
    assert outbox.size_bytes == 0


def test_frames_end_where_they_are_large_enough() -> None:
    outbox = LinkOutbox(10 * FRAME_BYTES_SOFT)
    for _ in range(5):
        add_batch(outbox, FRAME_BYTES_SOFT // 3)
    outbox.add_message(GROUP, SMALL, ())

    assert [len(parts) for parts in frames_of(outbox)] == [2, 2, 2]


def test_frames_end_where_they_have_many_elements() -> None:
    outbox = LinkOutbox(10 * FRAME_BYTES_SOFT)
    for _ in range(FRAME_ELEMENTS_SOFT + 5):
        outbox.add_message(GROUP, SMALL, ())

    assert [len(parts) for parts in frames_of(outbox)] == [FRAME_ELEMENTS_SOFT, 5]


def test_bound_holds_over_closed_and_open_frames() -> None:
    outbox = LinkOutbox(3 * FRAME_BYTES_SOFT)
    taken = [add_batch(outbox, FRAME_BYTES_SOFT // 2) for _ in range(10)]

    assert taken == [True] * 5 + [False] * 5
    assert outbox.size_bytes <= 3 * FRAME_BYTES_SOFT
    assert not outbox.add(PeerPost(1, bytes(FRAME_BYTES_SOFT)))
    assert outbox.add_message(GROUP, SMALL, ())


def test_sent_frames_free_their_room() -> None:
    outbox = LinkOutbox(FRAME_BYTES_SOFT)
    add_batch(outbox, 600_000)
    assert not add_batch(outbox, 600_000)
    outbox.take_frame()

    assert add_batch(outbox, 600_000)


def test_single_message_may_exceed_the_bound_of_the_queue_but_not_of_a_frame() -> None:
    outbox = LinkOutbox(1000)

    assert not add_batch(outbox, FRAME_BYTES_MAX)
    assert add_batch(outbox, 5000)
    assert not add_batch(outbox, 5000)


def test_state_of_a_snapshot_counts() -> None:
    outbox = LinkOutbox(1000)
    outbox.add_message(GROUP, SMALL, ())
    snapshot = Snapshot(LogIndex(1), Term(1), Membership((ONE,)), bytes(2000))

    assert not outbox.add_message(GROUP, InstallSnapshot(ONE, TWO, Term(1), snapshot), ())
