from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.events.envelope import (
    EVENT_SIZE_BYTES_MAX,
    Body,
    Envelope,
    EventError,
    MalformedEvent,
    UnknownEvent,
    Vocabulary,
    encode,
)
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import TimestampMs


class Painted(Body, frozen=True):
    KIND: ClassVar[str] = "test.painted"

    colour: str
    coats: int = 1


class PaintedAgain(Body, frozen=True):
    KIND: ClassVar[str] = "test.painted"
    VERSION: ClassVar[int] = 2

    colours: tuple[str, ...]


WORDS = Vocabulary(Painted)
EVENT = Envelope("e1", TimestampMs(7), "test", Painted("red"), cause="e0")


def test_event_round_trips() -> None:
    assert WORDS.decode(encode(EVENT)) == EVENT


def test_event_in_the_log_is_flat_json_with_kind_and_version() -> None:
    assert msgspec.json.decode(encode(EVENT)) == {
        "id": "e1",
        "kind": "test.painted",
        "version": 1,
        "time_ms": 7,
        "source": "test",
        "cause": "e0",
        "body": {"colour": "red", "coats": 1},
    }


def test_reader_ignores_fields_that_a_newer_writer_added() -> None:
    written = msgspec.json.decode(encode(EVENT))
    written["body"]["gloss"] = True
    written["trace"] = "abc"
    assert WORDS.decode(msgspec.json.encode(written)) == EVENT


@pytest.mark.parametrize("change", [{"version": 2}, {"kind": "test.sanded"}])
def test_unknown_kind_or_version_is_distinguished_from_malformed_bytes(
    change: dict[str, object],
) -> None:
    written = {**msgspec.json.decode(encode(EVENT)), **change}
    with pytest.raises(UnknownEvent):
        WORDS.decode(msgspec.json.encode(written))


def test_vocabulary_reads_two_versions_of_a_kind() -> None:
    both = Vocabulary(Painted, PaintedAgain)
    newer = Envelope("e2", TimestampMs(8), "test", PaintedAgain(("red", "blue")))
    assert [both.decode(encode(event)).body for event in (EVENT, newer)] == [
        EVENT.body,
        newer.body,
    ]


def test_two_bodies_of_one_kind_and_version_are_a_bug() -> None:
    with pytest.raises(InvariantBroken):
        Vocabulary(Painted, Painted)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b'{"id": 1, "kind": "test.painted", "version": 1, "time_ms": 0, "source": "", "body": {}}',
        b'{"id": "", "kind": "test.painted", "version": 1, "time_ms": 0, "source": "", "body": 3}',
        b"[" * 100_000,
    ],
)
def test_invalid_bytes_are_a_malformed_event(data: bytes) -> None:
    with pytest.raises(MalformedEvent):
        WORDS.decode(data)


@given(st.binary(max_size=200))
@settings(deadline=None, max_examples=200)
def test_no_bytes_raise_anything_but_an_event_error(data: bytes) -> None:
    with pytest.raises(EventError):
        WORDS.decode(data)


def test_event_too_large_for_a_default_kafka_is_refused() -> None:
    large = Envelope("e", TimestampMs(0), "test", Painted("x" * EVENT_SIZE_BYTES_MAX))
    with pytest.raises(MalformedEvent, match="bytes"):
        encode(large)
