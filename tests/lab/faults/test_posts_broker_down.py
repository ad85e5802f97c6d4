"""The counts of the fault run posts-broker-down."""

from __future__ import annotations

import pytest

from kafkaesque.events.envelope import encode
from kafkaesque.events.social import Post, PostDeleted, post_envelope
from kafkaesque.lab.faults.runs.posts_broker_down import Consumed, Expected
from kafkaesque.sources.rules import generator


def value(event: Post | PostDeleted) -> bytes:
    return encode(post_envelope(event, "test"))


def post(name: str) -> bytes:
    event = Post(
        network="n", id=name, author="a", text="x", tags=(), languages=(), created_ms=1, seen_ms=1
    )
    return value(event)


def test_expected_posts_are_those_of_the_generator() -> None:
    expected = Expected.of(7, 200)
    posts = list(generator.posts(7, 0, 200))
    assert expected.posts == {item.uri for item in posts}
    late = [
        item for item in posts if item.deleted_after and item.number + item.deleted_after >= 200
    ]
    assert expected.deleted <= expected.posts
    assert late
    assert not expected.deleted & {item.uri for item in late}


@pytest.mark.parametrize(
    ("places", "doubled", "received_twice"),
    [
        ([(0, 0, "a"), (1, 0, "b")], 0, 0),
        ([(0, 0, "a"), (0, 0, "a")], 0, 1),
        ([(0, 0, "a"), (2, 5, "a")], 1, 0),
    ],
)
def test_post_at_two_offsets_is_doubled_and_a_redelivered_one_is_not(
    places: list[tuple[int, int, str]], doubled: int, received_twice: int
) -> None:
    consumed = Consumed()
    for partition, offset, name in places:
        consumed.take((partition, offset), post(name))
    assert (consumed.doubled, consumed.received_twice) == (doubled, received_twice)


def test_deletions_and_unreadable_records_are_not_posts() -> None:
    consumed = Consumed()
    consumed.take((0, 0), value(PostDeleted(network="n", id="a", deleted_ms=1)))
    consumed.take((0, 1), b"rubbish")
    assert consumed.posts == {}
    assert set(consumed.deleted.values()) == {"a"}
    assert consumed.unreadable == 1
