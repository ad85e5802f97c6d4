from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.model.limits import OFFSET_METADATA_LENGTH_MAX
from kafkaesque.tasks.rules.gaps import (
    KEYS_MAX,
    SINGLES_BYTES_MAX,
    WINDOW_OFFSETS_MAX,
    Gaps,
    digest_of,
    list_bytes,
    pack_gaps,
    unpack_gaps,
)


@pytest.mark.parametrize("metadata", ["", "hello", "g2b:###", "g2z:AAAA", "g2x:AA==", "g2",
                                      "g2b:AAAA", "g2b:gICA", "g1b:AAAA"])  # fmt: skip
def test_metadata_of_another_or_damaged_costs_a_repetition_only(metadata: str) -> None:
    assert unpack_gaps(7, metadata) == Gaps(7, 7)


def test_the_worst_bitmap_of_a_full_window_and_its_keys_fit_a_commit() -> None:
    chance = random.Random(1)
    opened = {offset for offset in range(WINDOW_OFFSETS_MAX) if chance.random() < 0.5}
    keys = {digest_of(b"%d" % n): chance.randrange(WINDOW_OFFSETS_MAX) for n in range(KEYS_MAX)}
    gaps = Gaps(0, WINDOW_OFFSETS_MAX, opened, keys)
    metadata = pack_gaps(gaps)
    assert len(metadata) <= OFFSET_METADATA_LENGTH_MAX
    assert unpack_gaps(0, metadata) == gaps


@pytest.mark.parametrize("window", [10**5, 10**6, 10**7])
def test_as_many_as_a_list_promises_to_hold_fit_a_commit(window: int) -> None:
    chance = random.Random(2)
    count = (SINGLES_BYTES_MAX - list_bytes(0, window)) // 2
    keys = {digest_of(b"%d" % n): chance.randrange(window) for n in range(KEYS_MAX)}
    gaps = Gaps(5, 5 + window, set(chance.sample(range(5, window), count)), keys)
    metadata = pack_gaps(gaps)
    assert len(metadata) <= OFFSET_METADATA_LENGTH_MAX
    assert unpack_gaps(5, metadata) == gaps


def test_where_not_all_fits_nothing_open_is_said_to_be_done() -> None:
    opened = set(range(0, 50_000, 2))
    found = unpack_gaps(0, pack_gaps(Gaps(0, 50_000, opened, {b"12345678": 17})))
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
def test_gaps_survive_their_text(
    base: int, window: int, opened: set[int], keys: dict[bytes, int]
) -> None:
    gaps = Gaps(
        base,
        base + window,
        {base + one for one in opened if one < window},
        {key: base + at for key, at in keys.items() if at < window},
    )
    assert unpack_gaps(base, pack_gaps(gaps)) == gaps
