from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.events import gateway as events
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.model.ids import PartitionIndex, TimestampMs


def test_command_headers_round_trip() -> None:
    full = events.CommandHeaders(
        "c1", "gw-1", "v2", TimestampMs(5), PartitionIndex(7), "corr", anonymous=True
    )
    minimal = events.CommandHeaders("c1", "gw-1", "v2", TimestampMs(5))
    for headers in (full, minimal):
        assert events.CommandHeaders.of(headers.to_headers()) == headers
    assert dict(minimal.to_headers()).keys() == {"id", "gateway", "app-version", "at-ms"}


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("id", b"1"), ("gateway", b"g"), ("app-version", b"v1"), ("at-ms", b"soon")),
        (("id", b"\xff"), ("gateway", b"g"), ("app-version", b"v1"), ("at-ms", b"1")),
        (("id", None), ("gateway", b"g"), ("app-version", b"v1"), ("at-ms", b"1")),
    ],
)
def test_incomplete_headers_are_malformed(headers: events.Headers) -> None:
    with pytest.raises(MalformedEvent):
        events.CommandHeaders.of(headers)


def test_values_have_the_documented_json() -> None:
    command = events.decode_command(b'{"op": "message.send", "body": {"to": "bob"}}')
    assert (command.op, bytes(command.body)) == ("message.send", b'{"to": "bob"}')
    event = events.decode_event(b'{"type": "message.new", "body": {}, "re": "c1", "at_ms": 5}')
    assert (event.type, event.re, event.at_ms) == ("message.new", "c1", 5)
    refused = events.decode_reply(b'{"ok": false, "code": "unknown-recipient", "message": "x"}')
    assert (refused.ok, refused.code) == (False, "unknown-recipient")
    shown = events.encode_value(events.Event("typing", events.raw({"to": "bob"})))
    assert shown == b'{"type":"typing","body":{"to":"bob"}}'


@given(st.binary(max_size=60))
@settings(deadline=None, max_examples=60)
def test_any_bytes_are_a_value_or_malformed(data: bytes) -> None:
    for decode in (events.decode_command, events.decode_event, events.decode_reply,
                   events.decode_presence, events.decode_revocation, events.decode_node):  # fmt: skip
        try:
            decode(data)
        except MalformedEvent:
            continue


def test_value_too_large_for_a_default_kafka_is_refused() -> None:
    with pytest.raises(MalformedEvent):
        events.encode_value(events.Event("x", events.raw("y" * 1_000_000)))


@pytest.mark.parametrize(("name", "partition"), [("alice", 7), ("bob", 0), ("zoë", 20)])
def test_partitioning_of_keys_never_changes(name: str, partition: int) -> None:
    """Another partitioning would put a user's new events on another partition, where resume misses them."""
    assert events.partition_of(name, 32) == partition
    assert events.partition_of(name.encode(), 32) == partition
