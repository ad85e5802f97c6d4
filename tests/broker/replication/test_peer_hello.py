"""The hello: its bytes, and which end gets the link."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.replication.rules.peer_hello import (
    HELLO_BYTES_MAX,
    NO_INCARNATION,
    PEER_HELLO_KEY,
    HelloAnswer,
    HelloRefusal,
    PeerHello,
    PeerIdentity,
    PeerLinkState,
    Purpose,
    decode_hello,
    decode_hello_answer,
    encode_hello,
    encode_hello_answer,
    is_peer_hello,
    judge,
)
from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import NODE_ID_MAX, NodeId

numbers = st.integers(0, 2**32 - 1)
identities = st.builds(
    PeerIdentity,
    st.integers(0, NODE_ID_MAX).map(NodeId),
    numbers,
    st.text(max_size=40),
    st.integers(0, 2**64 - 1),
)
correlation_ids = st.integers(-(2**31), 2**31 - 1)
hellos = st.builds(
    PeerHello, identities, st.sampled_from(Purpose), numbers, numbers, correlation_ids
)
answers = st.builds(
    HelloAnswer, st.sampled_from(HelloRefusal), identities, numbers, correlation_ids
)


def body(framed: bytes) -> bytes:
    assert struct.unpack_from(">i", framed)[0] == len(framed) - 4
    return framed[4:]


@settings(deadline=None, max_examples=100)
@given(hellos)
def test_hello_survives_encoding(hello: PeerHello) -> None:
    frame = body(encode_hello(hello))

    assert is_peer_hello(memoryview(frame))
    assert decode_hello(memoryview(frame)) == (hello, True)


@settings(deadline=None, max_examples=100)
@given(answers)
def test_answer_survives_encoding(answer: HelloAnswer) -> None:
    assert decode_hello_answer(body(encode_hello_answer(answer))) == answer


@settings(deadline=None, max_examples=200)
@given(hellos, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255))), st.integers(0, 99))
def test_damaged_hellos_raise_protocol_error_or_nothing(
    hello: PeerHello, flips: list[tuple[int, int]], length: int
) -> None:
    data = bytearray(body(encode_hello(hello)))
    for position, value in flips:
        data[position % len(data)] = value
    for decode in (decode_hello, decode_hello_answer):
        try:
            decode(bytes(data[:length]))
        except ProtocolError:
            continue


def test_ordinary_requests_are_not_hellos() -> None:
    assert not is_peer_hello(struct.pack(">hhih", 18, 3, 1, -1))
    assert not is_peer_hello(b"")
    assert not is_peer_hello(b"\x7d")


def test_hello_of_another_protocol_version_is_decoded_and_refused() -> None:
    hello = PeerHello(PeerIdentity(NodeId(2), 0, "c", 1), Purpose.LINK, 1, 1000)
    frame = bytearray(body(encode_hello(hello)))
    client_id_bytes = struct.unpack_from(">h", frame, 8)[0]
    struct.pack_into(">H", frame, 10 + client_id_bytes, 2)

    assert decode_hello(frame) == (hello, False)


def test_another_version_of_the_hello_itself_is_refused() -> None:
    with pytest.raises(ProtocolError, match="version 1"):
        decode_hello(struct.pack(">hhih", PEER_HELLO_KEY, 1, 0, -1))


def test_hello_beyond_its_bound_is_refused() -> None:
    caller = PeerIdentity(NodeId(2), 0, "c" * HELLO_BYTES_MAX, 1)
    with pytest.raises(ProtocolError, match="length of a hello"):
        decode_hello(body(encode_hello(PeerHello(caller, Purpose.LINK, 1, 1000))))


# -- who gets the link ----------------------------------------------------------------------------

INCARNATION = (0, 5)
NEW = PeerLinkState(NO_INCARNATION, None, False, False)
GREETING = PeerLinkState(NO_INCARNATION, None, False, True)
MINE = PeerLinkState(INCARNATION, None, True, False)
THEIRS = PeerLinkState(INCARNATION, 7, False, False)
GONE = PeerLinkState(INCARNATION, None, False, False)
GONE_AND_GREETING = PeerLinkState(INCARNATION, None, False, True)


@pytest.mark.parametrize(
    ("me", "caller", "incarnation", "attempt", "link_state", "refusal"),
    [
        # Nothing there yet.
        (1, 2, INCARNATION, 1, NEW, HelloRefusal.ACCEPTED),
        (1, 2, INCARNATION, 1, None, HelloRefusal.NOT_A_PEER),
        (1, 1, INCARNATION, 1, None, HelloRefusal.SAME_NODE),
        # Both dial at once: the lower one's wins, in every order of events.
        (1, 2, INCARNATION, 1, GREETING, HelloRefusal.CROSSING),
        (2, 1, INCARNATION, 1, GREETING, HelloRefusal.ACCEPTED),
        (1, 2, INCARNATION, 1, MINE, HelloRefusal.CROSSING),
        (2, 1, INCARNATION, 1, MINE, HelloRefusal.ACCEPTED),
        # A broker that dials again has lost the connection that it had dialled.
        (1, 2, INCARNATION, 8, THEIRS, HelloRefusal.ACCEPTED),
        (2, 1, INCARNATION, 8, THEIRS, HelloRefusal.ACCEPTED),
        (1, 2, INCARNATION, 7, THEIRS, HelloRefusal.OLD_INCARNATION),
        (1, 2, INCARNATION, 1, GONE, HelloRefusal.ACCEPTED),
        # Incarnations: starts on one disk, and disks.
        (1, 2, (0, 6), 1, MINE, HelloRefusal.ACCEPTED),
        (1, 2, (0, 6), 1, THEIRS, HelloRefusal.ACCEPTED),
        (1, 2, (1, 0), 1, THEIRS, HelloRefusal.ACCEPTED),
        (1, 2, (0, 4), 99, THEIRS, HelloRefusal.OLD_INCARNATION),
        (2, 1, (0, 4), 99, GONE, HelloRefusal.OLD_INCARNATION),
        (2, 1, (0, 4), 99, GONE_AND_GREETING, HelloRefusal.OLD_INCARNATION),
        (1, 2, (0, 6), 1, GONE_AND_GREETING, HelloRefusal.CROSSING),
    ],
)
def test_one_connection_is_the_link(
    me: int,
    caller: int,
    incarnation: tuple[int, int],
    attempt: int,
    link_state: PeerLinkState | None,
    refusal: HelloRefusal,
) -> None:
    mine = PeerIdentity(NodeId(me), 0, "c", 1)
    theirs = PeerIdentity(NodeId(caller), incarnation[0], "c", incarnation[1])

    assert judge(mine, PeerHello(theirs, Purpose.LINK, attempt, 1000), link_state) is refusal


@pytest.mark.parametrize(
    ("my_cluster", "cluster", "purpose", "refusal"),
    [
        ("c", "d", Purpose.LINK, HelloRefusal.WRONG_CLUSTER),
        ("c", "d", Purpose.INTRODUCTION, HelloRefusal.WRONG_CLUSTER),
        ("c", "", Purpose.LINK, HelloRefusal.NOT_A_PEER),
        ("", "c", Purpose.LINK, HelloRefusal.NOT_A_PEER),
        ("", "", Purpose.LINK, HelloRefusal.NOT_A_PEER),
        ("c", "", Purpose.INTRODUCTION, HelloRefusal.ACCEPTED),
        ("", "", Purpose.INTRODUCTION, HelloRefusal.ACCEPTED),
        ("c", "c", Purpose.INTRODUCTION, HelloRefusal.ACCEPTED),
    ],
)
def test_links_stay_within_a_cluster_and_introductions_may_come_from_outside(
    my_cluster: str, cluster: str, purpose: Purpose, refusal: HelloRefusal
) -> None:
    me, caller = PeerIdentity(NodeId(1), 0, my_cluster, 1), PeerIdentity(NodeId(2), 0, cluster, 1)

    assert judge(me, PeerHello(caller, purpose, 1, 1000), NEW) is refusal
