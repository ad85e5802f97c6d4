from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.limits import OFFSET_METADATA_LENGTH_MAX
from kafkaesque.tasks.rules.offset_metadata import (
    KEYS_MAX,
    SINGLES_BYTES_MAX,
    WINDOW_OFFSETS_MAX,
    OpenOffsets,
    decode_metadata,
    digest_of,
    encode_metadata,
    list_bytes,
)


@pytest.mark.parametrize("metadata", ["", "hello", "g2b:###", "g2z:AAAA", "g2x:AA==", "g2",
                                      "g2b:AAAA", "g2b:gICA", "g1b:AAAA"])  # fmt: skip
def test_foreign_or_damaged_metadata_counts_as_empty(metadata: str) -> None:
    assert decode_metadata(7, metadata) == OpenOffsets(7, 7)


def test_the_largest_bitmap_and_all_keys_fit_in_a_commit() -> None:
    chance = random.Random(1)
    opened = {offset for offset in range(WINDOW_OFFSETS_MAX) if chance.random() < 0.5}
    keys = {digest_of(b"%d" % n): chance.randrange(WINDOW_OFFSETS_MAX) for n in range(KEYS_MAX)}
    original = OpenOffsets(0, WINDOW_OFFSETS_MAX, opened, keys)
    metadata = encode_metadata(original)
    assert len(metadata) <= OFFSET_METADATA_LENGTH_MAX
    assert decode_metadata(0, metadata) == original


@pytest.mark.parametrize("window", [10**5, 10**6, 10**7])
def test_the_longest_list_fits_in_a_commit(window: int) -> None:
    chance = random.Random(2)
    count = (SINGLES_BYTES_MAX - list_bytes(0, window)) // 2
    keys = {digest_of(b"%d" % n): chance.randrange(window) for n in range(KEYS_MAX)}
    original = OpenOffsets(5, 5 + window, set(chance.sample(range(5, window), count)), keys)
    metadata = encode_metadata(original)
    assert len(metadata) <= OFFSET_METADATA_LENGTH_MAX
    assert decode_metadata(5, metadata) == original


def test_offsets_that_do_not_fit_count_as_open() -> None:
    opened = set(range(0, 50_000, 2))
    found = decode_metadata(0, encode_metadata(OpenOffsets(0, 50_000, opened, {b"12345678": 17})))
    assert found.end > 1_000
    assert found.opened == {offset for offset in opened if offset < found.end}
    assert found.keys == {b"12345678": 17}


@settings(deadline=None, max_examples=60)
@given(
    base=st.integers(0, 2**50),
    window=st.integers(1, 60_000),
    opened=st.sets(st.integers(0, 59_999), max_size=300),
    keys=st.dictionaries(st.binary(min_size=8, max_size=8), st.integers(0, 59_999), max_size=20),
)
def test_metadata_round_trip(
    base: int, window: int, opened: set[int], keys: dict[bytes, int]
) -> None:
    original = OpenOffsets(
        base,
        base + window,
        {base + one for one in opened if one < window},
        {key: base + at for key, at in keys.items() if at < window},
    )
    assert decode_metadata(base, encode_metadata(original)) == original
