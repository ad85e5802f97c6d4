from __future__ import annotations

from tests.pipeline.jobs.conftest import NOON_MS, at

from kafkaesque.events.envelope import encode
from kafkaesque.events.social import Post, PostDeleted, PostEdited, post_envelope
from kafkaesque.pipeline.jobs.envelopes import VALUE_SIZE_BYTES_MAX, dead_letters
from kafkaesque.pipeline.jobs.posts import (
    clean_posts,
    deletions,
    first_occurrences,
    parse_posts,
    without_deleted,
    without_known,
)


def post(number: int, text: str = "hello", seen_ms: int = NOON_MS, **more) -> bytes:
    event = Post(
        network=more.pop("network", "bluesky"),
        id=f"p{number}",
        author="ann",
        text=text,
        tags=more.pop("tags", ()),
        languages=more.pop("languages", ()),
        created_ms=seen_ms - 5,
        seen_ms=seen_ms,
        **more,
    )
    return encode(post_envelope(event, "test"))


def deleted(number: int) -> bytes:
    event = PostDeleted(network="bluesky", id=f"p{number}", deleted_ms=NOON_MS)
    return encode(post_envelope(event, "test"))


def test_post_events_become_clean_rows(records) -> None:
    edited = PostEdited(
        network="bluesky",
        id="p9",
        text="new",
        tags=("b",),
        languages=(),
        edited_ms=NOON_MS,
        seen_ms=NOON_MS,
    )
    values = [
        post(1, " hi\x00 there ", tags=("Spark", "spark", "#X"), languages=("pt-BR", "en")),
        post(2, "no tags given but #Kafka and #kafka"),
        encode(post_envelope(edited, "test")),
        deleted(3),
    ]
    rows = clean_posts(parse_posts(records([(value, NOON_MS) for value in values])))
    found = [(r["id"], r["text"], r["tags"], r["language"], r["is_edit"]) for r in rows.collect()]
    assert found == [
        ("p1", "hi there", ["spark", "x"], "pt", False),
        ("p2", "no tags given but #Kafka and #kafka", ["kafka"], "und", False),
        ("p9", "new", ["b"], "und", True),
    ]
    assert rows.first()["seen_at"] == at(NOON_MS)


def test_invalid_records_become_dead_letters_with_reason_and_position(records) -> None:
    known = {"id": "e", "kind": "social.post", "version": 1, "time_ms": 1, "source": "s"}
    body = {"network": "n", "id": "i", "tags": []}
    values = [
        None,
        b"\xff\xfe",
        b"{broken",
        b'"text"',
        {"kind": "social.post"},
        {**known, "kind": "social.like", "body": body},
        {**known, "version": 7, "body": body},
        {**known, "body": {"network": "n"}},
        {**known, "body": {**body, "tags": "no list"}},
        b" " * (VALUE_SIZE_BYTES_MAX + 1),
        {**known, "body": body},
    ]
    letters = dead_letters(parse_posts(records([(value, NOON_MS) for value in values])))
    assert [(row["offset"], row["reason"]) for row in letters.orderBy("offset").collect()] == [
        (0, "no value"),
        (1, "not UTF-8"),
        (2, "not JSON of an event"),
        (3, "not JSON of an event"),
        (4, "no envelope: id or kind is missing"),
        (5, "unknown kind social.like"),
        (6, "unknown version 7 of social.post"),
        (7, "the body lacks id"),
        (8, "not JSON of an event"),
        (9, f"too large: {VALUE_SIZE_BYTES_MAX + 1} bytes"),
    ]


def test_event_time_far_ahead_of_the_log_is_replaced(records) -> None:
    year_ahead = NOON_MS + 365 * 86_400_000
    rows = parse_posts(records([(post(1, seen_ms=year_ahead), NOON_MS), (post(2), NOON_MS)]))
    found = [(row["event_time"], row["clock_ahead"]) for row in rows.collect()]
    assert found == [(at(NOON_MS), True), (at(NOON_MS), False)]


def test_repeats_count_once_within_a_batch_and_against_the_table(records) -> None:
    values = [post(1), post(2), post(1), post(3)]
    rows = first_occurrences(
        clean_posts(parse_posts(records([(value, NOON_MS) for value in values])))
    )
    assert sorted((r["id"], r["offset"]) for r in rows.collect()) == [
        ("p1", 0),
        ("p2", 1),
        ("p3", 3),
    ]
    known = rows.where("id = 'p2'")
    assert sorted(r["id"] for r in without_known(rows, known).collect()) == ["p1", "p3"]


def test_deleted_posts_are_removed(records) -> None:
    events = parse_posts(
        records([(v, NOON_MS) for v in (post(1), post(2), deleted(1), deleted(1))])
    )
    gone = deletions(events)
    assert [(row["network"], row["id"]) for row in gone.collect()] == [("bluesky", "p1")]
    assert [row["id"] for row in without_deleted(clean_posts(events), gone).collect()] == ["p2"]
