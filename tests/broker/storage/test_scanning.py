"""Selecting batches from a chunk of a file."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.broker.storage.batches import make_batch

from kafkaesque.broker.storage.scanning import (
    ANY,
    HEADERS_CHUNK_BYTES,
    VERIFY_CHUNK_BYTES,
    cut_batches,
    iter_headers,
    iter_verified,
)
from kafkaesque.model.errors import CorruptMessage

BATCHES = [bytes(make_batch(offset, 2)) for offset in (0, 2, 4, 6)]
SIZE = len(BATCHES[0])
CHUNK = b"".join(BATCHES)


@pytest.mark.parametrize(
    ("offset", "limit", "max_bytes", "first", "count"),
    [
        (0, 8, 10_000, 0, 4),
        (1, 8, 10_000, 0, 4),
        (3, 8, 10_000, 1, 3),
        (0, 4, 10_000, 0, 2),
        (0, 3, 10_000, 0, 2),
        (2, 2, 10_000, 1, 0),
        (2, 8, 1, 1, 1),
        (2, 8, 2 * SIZE, 1, 2),
        (2, 8, 2 * SIZE - 1, 1, 1),
    ],
)
def test_batches_are_chosen_by_offset_limit_and_size(
    offset: int, limit: int, max_bytes: int, first: int, count: int
) -> None:
    cut = cut_batches(CHUNK, offset, limit, max_bytes, True, ANY, ANY)
    assert (cut.start, cut.end) == (first * SIZE, (first + count) * SIZE)
    assert cut.next_offset == ((first + count) * 2 if count else offset)
    assert (cut.missing_bytes, cut.damage) == (0, None)


def test_first_batch_above_the_size_is_left_unless_one_is_due() -> None:
    cut = cut_batches(CHUNK, 2, 8, 1, False, ANY, ANY)
    assert (cut.start, cut.end, cut.missing_bytes) == (SIZE, SIZE, 0)


@pytest.mark.parametrize(
    ("length", "offset", "start", "end", "missing"),
    [
        (SIZE - 1, 0, 0, 0, SIZE),
        (60, 0, 0, 0, 61),
        (SIZE + 60, 0, 0, SIZE, 0),
        (2 * SIZE - 1, 0, 0, SIZE, 0),
        (SIZE, 2, SIZE, SIZE, 61),
        (SIZE - 1, 2, SIZE, SIZE, 61),
        (SIZE + 70, 2, SIZE, SIZE, SIZE),
    ],
)
def test_batch_that_does_not_end_in_the_chunk_is_requested(
    length: int, offset: int, start: int, end: int, missing: int
) -> None:
    cut = cut_batches(CHUNK[:length], offset, 8, 10_000, True, ANY, ANY)
    assert (cut.start, cut.end, cut.missing_bytes) == (start, end, missing)
    assert cut.damage is None


@pytest.mark.parametrize("position", [16, 8, 23, 0, 30, 61])
def test_damage_ends_the_choice_before_it(position: int) -> None:
    chunk = bytearray(CHUNK)
    chunk[2 * SIZE + position] ^= 0x80
    cut = cut_batches(bytes(chunk), 0, 8, 10_000, True, ANY, ANY)
    assert (cut.start, cut.end, cut.next_offset) == (0, 2 * SIZE, 4)
    assert cut.damage is not None
    assert cut.damage.position == 2 * SIZE


def test_damaged_size_that_no_limit_allows_only_ends_the_choice() -> None:
    chunk = bytearray(CHUNK)
    chunk[2 * SIZE + 9] ^= 0x80
    cut = cut_batches(bytes(chunk), 0, 8, 10_000, True, ANY, ANY)
    assert (cut.end, cut.damage) == (2 * SIZE, None)
    alone = cut_batches(bytes(chunk[2 * SIZE :]), 4, 8, 10_000, True, ANY, ANY)
    assert alone.missing_bytes > 8 * 1024 * 1024


def test_damage_inside_a_skipped_batch_is_ignored() -> None:
    chunk = bytearray(CHUNK)
    chunk[SIZE - 1] ^= 1
    cut = cut_batches(bytes(chunk), 2, 8, 10_000, True, ANY, ANY)
    assert (cut.start, cut.end, cut.damage) == (SIZE, 4 * SIZE, None)


def _reader(data: bytes) -> Callable[[int, int], bytes]:
    return lambda size_bytes, position: data[position : position + size_bytes]


@pytest.mark.parametrize("walk", [iter_headers, iter_verified])
def test_walk_finds_batches_of_any_size(walk: Callable[..., object]) -> None:
    sizes = [10, HEADERS_CHUNK_BYTES, 0, VERIFY_CHUNK_BYTES * 2, 100, HEADERS_CHUNK_BYTES - 100] * 2
    batches = [bytes(make_batch(i, size_bytes=size)) for i, size in enumerate(sizes)]
    data = b"".join(batches)
    found = list(walk(_reader(data), 0, len(data)))  # type: ignore[call-overload]
    assert [header.base_offset for _, header in found] == list(range(len(sizes)))
    assert [position for position, _ in found] == [
        sum(map(len, batches[:i])) for i in range(len(sizes))
    ]


def test_verified_walk_stops_at_the_first_unsound_batch_and_names_its_position() -> None:
    data = bytearray(CHUNK)
    data[3 * SIZE - 1] ^= 1
    walk = iter_verified(_reader(bytes(data)), 0, len(data))
    assert [next(walk)[0], next(walk)[0]] == [0, SIZE]
    with pytest.raises(CorruptMessage) as raised:
        next(walk)
    assert raised.value.args[1] == 2 * SIZE


@pytest.mark.parametrize("length", [4 * SIZE - 1, 3 * SIZE + 61, 3 * SIZE + 60, 3 * SIZE + 1])
def test_verified_walk_does_not_take_half_a_batch(length: int) -> None:
    walk = iter_verified(_reader(CHUNK[:length]), 0, length)
    for _ in range(3):
        next(walk)
    with pytest.raises(CorruptMessage) as raised:
        next(walk)
    assert raised.value.args[1] == 3 * SIZE
