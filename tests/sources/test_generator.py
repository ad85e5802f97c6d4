from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.sources.rules import generator
from kafkaesque.sources.rules.generator import (
    TAGS,
    TimelineEntryKind,
    count_at,
    entries,
    offset_us,
    post,
    posts,
)
from kafkaesque.sources.rules.hashtags import tags_in_text


def test_post_of_a_seed_never_changes() -> None:
    """Recorded values: the generator must give the same posts in every later version."""
    first = post(7, 0)
    assert (first.text, first.language, first.author) == (
        "todo lo que sé de #news 🚀 (0)",
        "es",
        171,
    )
    assert first.uri == "at://did:plc:xga4fglgb6f64adzn4y63vyd/app.bsky.feed.post/3howv66e5q222"
    assert (first.status_id, first.x_id) == (105269046738944000, 1331453301748662272)


def test_posts_do_not_depend_on_the_start() -> None:
    assert list(posts(3, 0, 60))[40:] == list(posts(3, 40, 20))


def test_seeds_share_no_ids() -> None:
    for name in ("uri", "status_id", "x_id"):
        ids = [getattr(item, name) for seed in range(4) for item in posts(seed, 0, 300)]
        assert len(set(ids)) == len(ids)


def test_hashtags_follow_zipf_outside_of_bursts() -> None:
    counts = Counter(
        tag
        for item in posts(11, 0, 6000)
        if generator.burst_tag(11, item.number // generator.BLOCK_POSTS) is None
        for tag in item.tags
    )
    first, second, fourth = (counts[TAGS[rank]] for rank in (0, 1, 3))
    assert 1.6 < first / second < 2.4
    assert 3.0 < first / fourth < 5.0


def test_burst_is_about_its_tag_and_faster() -> None:
    block = next(n for n in range(100) if generator.burst_tag(5, n) is not None)
    start = block * generator.BLOCK_POSTS
    burst = list(posts(5, start, generator.BURST_POSTS))
    topic = generator.burst_tag(5, block)
    assert sum(topic in item.tags for item in burst) > len(burst) / 2
    assert burst[1].offset_us - burst[0].offset_us == generator.GAP_US // generator.BURST_FACTOR


def test_there_are_languages_late_posts_repetitions_and_deletions() -> None:
    sample = list(posts(7, 0, 2000))
    assert len({item.language for item in sample}) >= 6
    for share in (
        sum(item.late_ms > 0 for item in sample),
        sum(item.repeated_after > 0 for item in sample),
        sum(item.deleted_after > 0 for item in sample),
        sum(not item.tags for item in sample),
    ):
        assert 20 < share < 400


def test_text_contains_the_tags() -> None:
    for item in posts(7, 0, 500):
        assert tuple(tags_in_text(item.text)) == item.tags


@given(st.integers(0, 5), st.integers(0, 20_000))
@settings(deadline=None, max_examples=200)
def test_count_is_the_inverse_of_offset(seed: int, number: int) -> None:
    at = offset_us(seed, number)
    assert offset_us(seed, number + 1) > at
    assert (count_at(seed, at), count_at(seed, at - 1)) == (number + 1, number)
    assert generator.number_of_status(seed, post(seed, number).status_id) == number + 1


def test_entries_repeat_and_delete_each_post_once_after_it_appeared() -> None:
    seen: Counter[tuple[TimelineEntryKind, int]] = Counter()
    for tick in range(600):
        for order, entry in enumerate(entries(7, tick)):
            assert (entry.tick, entry.order) == (tick, order)
            assert (
                entry.what is TimelineEntryKind.POST
                or (TimelineEntryKind.POST, entry.post.number) in seen
            )
            seen[entry.what, entry.post.number] += 1
    assert set(seen.values()) == {1}
    expected = [
        item.number
        for item in posts(7, 0, 600)
        if item.deleted_after and item.number + item.deleted_after < 600
    ]
    assert [
        number for what, number in sorted(seen, key=str) if what is TimelineEntryKind.DELETE
    ] == sorted(expected, key=lambda number: str((TimelineEntryKind.DELETE, number)))


@pytest.mark.parametrize("number", [0, 1, 249, 250])
def test_record_keys_are_thirteen_sortable_digits(number: int) -> None:
    now, later = post(7, number).record_key, post(7, number + 1).record_key
    assert len(now) == 13
    assert now < later
