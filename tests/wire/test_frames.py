"""Splitting a stream into frames, for any fragmentation, within memory limits."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import MIB
from kafkaesque.wire.frames import (
    POOLED_BUFFERS_MAX,
    POOLED_BYTES_MAX,
    POOLED_BYTES_MIN,
    SCRATCH_BYTES_MAX,
    SCRATCH_BYTES_MIN,
    BufferPool,
    FrameReader,
    cut_frames,
)
from kafkaesque.wire.native import pure


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def feed(reader: FrameReader, data: bytes, step: int = 1 << 30) -> list[memoryview]:
    """Deliver `data` as a socket would: at most `step` bytes at a time, never above the offer."""
    frames = []
    rest = memoryview(data)
    while rest:
        buffer = reader.get_buffer(-1)
        assert len(buffer) > 0
        size = min(len(buffer), len(rest), step)
        buffer[:size] = rest[:size]
        frames += reader.buffer_updated(size)
        rest = rest[size:]
    return frames


def contents(frames: list[memoryview]) -> list[bytes]:
    return [frame.tobytes() for frame in frames]


BODIES = [b"a" * 10, b"b" * 700, b"c" * 3000, b"d" * 10, b"e" * 200_000, b"f" * 11, b"g" * 70_000]


@pytest.mark.parametrize("step", [1, 3, 7, 1024, 1500, 65_536, 1 << 30])
def test_frames_come_out_however_the_bytes_come_in(step: int) -> None:
    reader = FrameReader(1 * MIB)

    assert contents(feed(reader, framed(*BODIES), step)) == BODIES
    assert reader.held_bytes == 0


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.integers(10, 9000), max_size=20),
    st.lists(st.integers(1, 5000), min_size=1, max_size=8),
)
def test_any_sizes_in_any_steps(sizes: list[int], steps: list[int]) -> None:
    bodies = [bytes([index]) * size for index, size in enumerate(sizes)]
    stream = framed(*bodies)
    reader = FrameReader(1 * MIB)
    frames = []
    position = turn = 0
    while position < len(stream):
        size = steps[turn % len(steps)]
        frames += feed(reader, stream[position : position + size])
        position += size
        turn += 1

    assert contents(frames) == bodies


def test_frames_held_by_a_consumer_are_never_written_over() -> None:
    reader = FrameReader(1 * MIB)
    bodies = [bytes([index % 251]) * (10 + index % 90) for index in range(5000)]

    frames = feed(reader, framed(*bodies), 900)

    assert contents(frames) == bodies


def test_frames_are_writable() -> None:
    small, large = feed(FrameReader(1 * MIB), framed(b"x" * 20, b"y" * 100_000))

    small[:2] = b"ok"
    large[:2] = b"ok"
    assert (small[:3].tobytes(), large[:3].tobytes()) == (b"okx", b"oky")


def test_trailing_bytes_wait_for_the_rest_of_their_frame() -> None:
    reader = FrameReader(1 * MIB)

    assert contents(feed(reader, framed(b"x" * 20) + b"\0\0")) == [b"x" * 20]
    assert reader.held_bytes > 0
    assert contents(feed(reader, b"\0\x0a" + b"y" * 10)) == [b"y" * 10]


def test_large_frame_is_received_into_a_buffer_of_exactly_its_size() -> None:
    reader = FrameReader(1 * MIB)
    feed(reader, framed(b"x" * 200_000))  # after which lengths up to this one are believed
    feed(reader, struct.pack(">i", 150_000))

    buffer = reader.get_buffer(-1)
    assert len(buffer) == 150_000
    buffer[:] = b"z" * 150_000
    (frame,) = reader.buffer_updated(150_000)

    assert frame.obj is buffer.obj
    assert len(frame) == 150_000


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (-1, "negative length -1"),
        (-(2**31), "negative"),
        (0, "too short"),
        (9, "too short"),
        (1001, "exceeds the limit of 1000"),
        (2**31 - 1, "exceeds the limit"),
    ],
)
@pytest.mark.parametrize("before", [b"", framed(b"x" * 20)])
def test_bad_length_is_rejected_and_says_why(length: int, text: str, before: bytes) -> None:
    with pytest.raises(ProtocolError, match=text):
        feed(FrameReader(1000), before + struct.pack(">i", length))


def test_frame_at_either_limit_is_accepted() -> None:
    assert len(feed(FrameReader(1000), framed(b"x" * 10, b"y" * 1000))) == 2


def test_shortest_frame_is_four_bytes_for_a_client() -> None:
    reader = FrameReader(1000, frame_bytes_min=4)

    assert contents(feed(reader, framed(b"1234"))) == [b"1234"]


def test_limit_can_be_raised_after_the_first_answer() -> None:
    reader = FrameReader(100)
    feed(reader, framed(b"x" * 100))

    reader.limit_bytes = 5000

    assert len(feed(reader, framed(b"y" * 5000))) == 1


def test_claimed_length_is_not_allocated_before_its_bytes_arrive() -> None:
    reader = FrameReader(100 * MIB)
    feed(reader, struct.pack(">i", 100 * MIB))

    received = 0
    while received < 10 * MIB:
        buffer = reader.get_buffer(-1)
        assert len(buffer) <= max(16 * 1024, 4 * (received + 4))
        received += len(buffer)
        reader.buffer_updated(len(buffer))

    assert received <= reader.held_bytes <= 4 * (received + 4)


def test_held_is_the_whole_buffer_of_an_incomplete_frame_and_nothing_between_frames() -> None:
    reader = FrameReader(100 * MIB)
    assert reader.held_bytes == 0
    feed(reader, framed(b"x" * 20))
    assert reader.held_bytes == 0
    feed(reader, struct.pack(">i", 50_000))
    assert reader.held_bytes == 16 * 1024  # not a byte of it has come
    feed(reader, bytes(20_000))
    assert reader.held_bytes == 50_000
    feed(reader, bytes(30_000))
    assert reader.held_bytes == 0


def test_idle_connection_holds_no_large_buffer_even_after_a_burst() -> None:
    reader = FrameReader(1 * MIB)
    for last in (b"y" * 300_000, b"z" * 500):
        feed(reader, framed(*[b"x" * 500] * 1000))
        feed(reader, framed(last))

        view = reader._view
        assert view is None or view.nbytes <= SCRATCH_BYTES_MIN


def test_scratch_used_to_its_last_byte_is_followed_by_a_new_one() -> None:
    reader = FrameReader(1 * MIB)
    half = b"x" * (SCRATCH_BYTES_MIN // 2 - 4)

    assert contents(feed(reader, framed(half, half, half), SCRATCH_BYTES_MIN // 2)) == [half] * 3


def test_new_connection_has_no_buffer_until_it_is_read() -> None:
    assert FrameReader(1000)._view is None


def test_offer_grows_while_it_is_filled_and_shrinks_when_it_is_not() -> None:
    reader = FrameReader(1 * MIB)
    feed(reader, framed(*[b"x" * 500] * 1300))
    grown = len(reader.get_buffer(-1))

    for _ in range(200):
        feed(reader, framed(b"x" * 500))

    assert grown == SCRATCH_BYTES_MAX
    assert len(reader.get_buffer(-1)) <= SCRATCH_BYTES_MIN


def test_update_without_a_buffer_is_our_own_error() -> None:
    with pytest.raises(ValueError, match="get_buffer"):
        FrameReader(1000).buffer_updated(1)


LARGE = SCRATCH_BYTES_MAX + 1000


def receive_large(reader: FrameReader, fill: int) -> memoryview:
    (frame,) = feed(reader, LARGE.to_bytes(4) + bytes([fill]) * LARGE)
    return frame


def test_buffer_of_a_large_frame_serves_the_next_one() -> None:
    reader = FrameReader(1 << 20)
    # Trust grows with the first frame; from then on a frame has one buffer from the start.
    receive_large(reader, 1)
    frame = receive_large(reader, 2)
    buffer = frame.obj
    del frame
    again = receive_large(reader, 3)
    assert again.obj is buffer
    assert bytes(again) == bytes([3]) * LARGE


def test_frame_behind_a_large_one_is_not_copied() -> None:
    reader = FrameReader(1 << 20)
    receive_large(reader, 1)

    buffer = reader.get_buffer()
    assert len(buffer) == LARGE + 4
    buffer[:] = LARGE.to_bytes(4) + b"x" * LARGE
    (frame,) = reader.buffer_updated(LARGE + 4)

    assert frame.obj is buffer.obj


def test_small_frame_ends_the_expectation_of_large_ones() -> None:
    reader = FrameReader(1 << 20)
    receive_large(reader, 1)
    feed(reader, framed(b"x" * 500))
    assert len(reader.get_buffer()) <= SCRATCH_BYTES_MAX


@pytest.mark.parametrize("large", [True, False])
def test_buffer_that_is_still_looked_at_is_never_given_to_another_frame(large: bool) -> None:
    reader = FrameReader(1 << 20)
    bodies = [bytes([fill]) * (LARGE if large else 5000) for fill in range(20)]
    held = []
    for body in bodies:
        (frame,) = feed(reader, framed(body))
        held.append(frame[100:200])
    assert contents(held) == [body[100:200] for body in bodies]


def test_connections_take_turns_with_one_scratch() -> None:
    pool = BufferPool()
    readers = [FrameReader(1 << 20, pool), FrameReader(1 << 20, pool)]
    for reader in readers:
        feed(reader, framed(*[b"x" * 500] * 1300))
    pool._buffers.clear()
    scratches = [feed(reader, framed(*[b"x" * 500] * 400))[0].obj for reader in readers]
    assert scratches[0] is scratches[1]


def test_pool_keeps_a_bounded_number_of_buffers_of_bounded_size() -> None:
    pool = BufferPool()
    for _ in range(POOLED_BUFFERS_MAX + 5):
        pool.give(memoryview(bytearray(POOLED_BYTES_MIN)))
    pool.give(memoryview(bytearray(POOLED_BYTES_MAX + 1)))
    pool.give(memoryview(bytearray(POOLED_BYTES_MIN - 1)))
    sizes = [len(buffer) for buffer in pool._buffers]
    assert sizes == [POOLED_BYTES_MIN] * POOLED_BUFFERS_MAX


def test_used_buffer_is_taken_before_a_new_one_is_made() -> None:
    pool = BufferPool()
    buffer = bytearray(100_000)
    pool.give(memoryview(buffer))
    view = pool.take(60_000)
    assert view.obj is buffer
    assert len(view) == 60_000
    assert pool.take(60_000).obj is not buffer


def test_few_bytes_never_pin_a_large_buffer() -> None:
    pool = BufferPool()
    buffer = bytearray(POOLED_BYTES_MAX)
    pool.give(memoryview(buffer))
    assert pool.take(POOLED_BYTES_MAX // 4 - 1).obj is not buffer


def lengths_and_bodies() -> st.SearchStrategy[bytes]:
    """A stream of frames, some of which claim what is not there."""
    body = st.binary(max_size=30)
    whole = body.map(lambda data: struct.pack(">i", len(data)) + data)
    claim = st.integers(-(2**31), 2**31 - 1).map(struct.Struct(">i").pack)
    return st.lists(st.one_of(whole, whole, whole, claim, body), max_size=8).map(b"".join)


@settings(deadline=None, max_examples=300)
@given(lengths_and_bodies(), st.integers(0, 20), st.integers(0, 20), st.sampled_from([0, 1, 10]))
def test_compiled_and_pure_cutters_find_the_same_frames(
    stream: bytes, start: int, cut: int, smallest: int
) -> None:
    view = memoryview(bytearray(stream))
    filled = max(0, len(stream) - cut)
    for largest in (smallest, 15, 2**31 - 1):
        arguments = (view, start, filled, smallest, largest)
        frames, end, next_bytes = cut_frames(*arguments)
        assert (frames, end, next_bytes) == pure(cut_frames)(*arguments)
        assert all(frame.obj is view.obj for frame in frames)
        assert end == start + sum(len(frame) + 4 for frame in frames)


def test_cutter_asked_for_more_than_there_is_rejects_as_the_pure_one_does() -> None:
    for cut in (cut_frames, pure(cut_frames)):
        with pytest.raises(struct.error):
            cut(memoryview(b"\0\0\0"), 0, 9, 0, 9)
        with pytest.raises(TypeError):
            cut(memoryview(b"\0\0\0\0"), 0, 4, None, 9)  # type: ignore[arg-type]
