"""Partitions, groups and bucket of the text protocol."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.groups.consumer_protocol import (
    assign_ranges,
    decode_assignment,
    encode_assignment,
    encode_subscription,
    subscribed_topics,
)
from kafkaesque.broker.text.rules.partitioning import RoundRobin, murmur2, partition_of_key
from kafkaesque.model.errors import ProtocolError


@pytest.mark.parametrize(
    ("data", "signed"),
    # Kafka's own UtilsTest.testMurmur2
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_key_is_hashed_as_by_the_java_client(data: bytes, signed: int) -> None:
    assert murmur2(data) == signed & 0xFFFFFFFF


def test_messages_without_a_key_take_round_robin_by_topic() -> None:
    round_robin = RoundRobin()
    assert [round_robin.next("a", 3) for _ in range(4)] == [0, 1, 2, 0]
    assert round_robin.next("b", 3) == 0
    assert round_robin.next("a", 1) == 0


@settings(deadline=None)
@given(st.binary(), st.integers(1, 50))
def test_key_has_one_partition_and_it_exists(key: bytes, count: int) -> None:
    assert 0 <= partition_of_key(key, count) < count


@pytest.mark.parametrize(
    ("members", "counts", "assigned"),
    [
        (
            {"a": {"t"}, "b": {"t"}},
            {"t": 3},
            {"a": {"t": [0, 1]}, "b": {"t": [2]}},
        ),
        (
            {"a": {"t"}, "b": {"t", "u"}, "c": {"t"}},
            {"t": 2, "u": 1},
            {"a": {"t": [0]}, "b": {"t": [1], "u": [0]}, "c": {}},
        ),
    ],
)
def test_ranges_are_given_out_as_by_kafka(
    members: dict[str, set[str]],
    counts: dict[str, int],
    assigned: dict[str, dict[str, list[int]]],
) -> None:
    frozen = {member: frozenset(topics) for member, topics in members.items()}
    assert assign_ranges(frozen, counts) == assigned


_names = st.text(alphabet="abc.-", min_size=1, max_size=5)


@settings(deadline=None)
@given(st.dictionaries(_names, st.lists(st.integers(0, 99), max_size=4), max_size=4))
def test_assignment_survives_its_bytes(assignment: dict[str, list[int]]) -> None:
    assert decode_assignment(encode_assignment(assignment)) == assignment
    assert decode_assignment(b"") == {}


@settings(deadline=None)
@given(st.frozensets(_names))
def test_subscription_is_understood_by_the_broker(topics: frozenset[str]) -> None:
    assert subscribed_topics(encode_subscription(topics)) == topics


@settings(deadline=None)
@given(st.binary(min_size=1))
def test_strange_assignment_is_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode_assignment(data)
