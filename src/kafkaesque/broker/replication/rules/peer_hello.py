"""The handshake between two brokers: the hello, its answer, and which connection is the link. No
I/O.

A link begins on the broker's Kafka port, as a request with an API key that Kafka will never use.
After an accepting answer, both sides continue with the frames of `peer_codec`.

A pair of brokers has one link. If both dial at once, the connection of the lower node id wins
(`judge`). A newer incarnation of a broker, or a later attempt of the same incarnation, replaces the
existing link: a broker that dials has no link any more.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import NODE_ID_MAX, MemberId, NodeId, member_id
from kafkaesque.model.limits import KIB

PEER_HELLO_KEY: Final = 32000
HELLO_VERSION: Final = 0
PEER_PROTOCOL_VERSION: Final = 1
HELLO_BYTES_MAX: Final = 4 * KIB
CLIENT_ID: Final = b"kafkaesque-peer"

_API_KEY = struct.Struct(">h")
_HEADER = struct.Struct(">hhih")  # key, version, correlation id, length of the client id
# Protocol, purpose, node, generation, incarnation, attempt, silence, length of the cluster id.
_HELLO = struct.Struct(">HBIIQIIH")
# Correlation id, protocol, refusal, node, generation, incarnation, silence, length of cluster id.
_ANSWER = struct.Struct(">iHBIIQIH")
_LENGTH = struct.Struct(">I")


class PeerIdentity(NamedTuple):
    """One incarnation of a broker: one run of its process. `(generation, incarnation)` increases
    with every start: the generation counts disks, the incarnation counts starts on one disk."""

    node_id: NodeId
    generation: int
    cluster_id: str
    """Empty while the broker belongs to no cluster."""
    incarnation: int

    @property
    def member(self) -> MemberId:
        return member_id(self.node_id, self.generation)

    @property
    def incarnation_id(self) -> tuple[int, int]:
        """Increases with every start of the broker."""
        return self.generation, self.incarnation


class Purpose(IntEnum):
    LINK = 0
    """To become the link of this pair."""
    INTRODUCTION = 1
    """To make calls only: no Raft messages, and not the link of the pair. A broker that is about to
    join has no generation yet and cannot name the broker at the other end."""


class PeerHello(NamedTuple):
    caller: PeerIdentity
    purpose: Purpose
    attempt: int
    """Counts the connections that this incarnation of the caller has made."""
    silence_ms: int
    """The caller does not consider the other side silent before this time without data."""
    correlation_id: int = 0


class HelloRefusal(IntEnum):
    ACCEPTED = 0
    WRONG_CLUSTER = 1
    SAME_NODE = 2
    """The caller has our own node id: it is this broker, or one configured with the wrong id."""
    WRONG_VERSION = 3
    NOT_A_PEER = 4
    """The caller is unknown here, perhaps only for now."""
    OLD_INCARNATION = 5
    """A newer incarnation of the caller, or a later attempt, was seen."""
    CROSSING = 6
    """We have, or are about to have, a link that we dialled, and it wins."""
    TOO_MANY = 7


class HelloAnswer(NamedTuple):
    refusal: HelloRefusal
    answerer: PeerIdentity
    silence_ms: int
    """As in the hello."""
    correlation_id: int = 0


class PeerLinkState(NamedTuple):
    """The answerer's current connection state with the caller's node."""

    newest_incarnation: tuple[int, int]
    """The newest incarnation of that node ever seen."""
    attempt: int | None
    """The attempt number of the current link, if the caller's node dialled it in its newest
    incarnation."""
    is_mine: bool
    """There is a link, and we dialled it."""
    is_greeting: bool
    """There is no link, but our hello is on its way."""


NO_INCARNATION: Final = (-1, -1)
"""Less than every incarnation."""


def judge(me: PeerIdentity, hello: PeerHello, link_state: PeerLinkState | None) -> HelloRefusal:
    """Decides on a hello. `link_state` is None if the caller is not a peer."""
    caller = hello.caller
    if caller.cluster_id and me.cluster_id and caller.cluster_id != me.cluster_id:
        # Checked first: the nodes of two clusters often have the same ids.
        return HelloRefusal.WRONG_CLUSTER
    if caller.node_id == me.node_id:
        return HelloRefusal.SAME_NODE
    if hello.purpose is Purpose.INTRODUCTION:
        return HelloRefusal.ACCEPTED
    if link_state is None or not (caller.cluster_id and me.cluster_id):
        return HelloRefusal.NOT_A_PEER
    if caller.incarnation_id < link_state.newest_incarnation:
        return HelloRefusal.OLD_INCARNATION
    is_lower = me.node_id < caller.node_id
    if is_lower and link_state.is_greeting:
        return HelloRefusal.CROSSING
    if caller.incarnation_id > link_state.newest_incarnation:
        return HelloRefusal.ACCEPTED
    if is_lower and link_state.is_mine:
        # The caller dialled before it saw our connection. (Or our connection is dead, and we will
        # notice.)
        return HelloRefusal.CROSSING
    if link_state.attempt is not None and hello.attempt <= link_state.attempt:
        return HelloRefusal.OLD_INCARNATION
    return HelloRefusal.ACCEPTED


# -- bytes --------------------------------------------------------------------------------------


def is_peer_hello(frame: memoryview | bytes) -> bool:
    """Returns whether a request, given without its length, is the hello of a peer."""
    return len(frame) >= _API_KEY.size and _API_KEY.unpack_from(frame)[0] == PEER_HELLO_KEY


def encode_hello(hello: PeerHello) -> bytes:
    """Returns a whole request."""
    caller = hello.caller
    cluster_id = caller.cluster_id.encode()
    body = _HELLO.pack(
        PEER_PROTOCOL_VERSION,
        hello.purpose,
        caller.node_id,
        caller.generation,
        caller.incarnation,
        hello.attempt,
        hello.silence_ms,
        len(cluster_id),
    )
    header = _HEADER.pack(PEER_HELLO_KEY, HELLO_VERSION, hello.correlation_id, len(CLIENT_ID))
    return _framed(header + CLIENT_ID + body + cluster_id)


def decode_hello(frame: memoryview | bytes) -> tuple[PeerHello, bool]:
    """Decodes a request, given without its length. Also returns whether its protocol version is
    ours."""
    try:
        key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
        if key != PEER_HELLO_KEY or version != HELLO_VERSION:
            raise ProtocolError(f"a hello has API key {key}, version {version}")
        start = _HEADER.size + max(client_id_length, 0)
        values = _HELLO.unpack_from(frame, start)
    except struct.error as error:
        raise ProtocolError("a hello is truncated") from error
    protocol, purpose, node, generation, incarnation, attempt, silence_ms, length = values
    cluster_id = _text(frame, start + _HELLO.size, length)
    if purpose > Purpose.INTRODUCTION:
        raise ProtocolError(f"a hello has unknown purpose {purpose}")
    caller = _identity(node, generation, cluster_id, incarnation)
    hello = PeerHello(caller, Purpose(purpose), attempt, silence_ms, correlation_id)
    return hello, protocol == PEER_PROTOCOL_VERSION


def encode_hello_answer(answer: HelloAnswer) -> bytes:
    """Returns a whole response."""
    answerer = answer.answerer
    cluster_id = answerer.cluster_id.encode()
    return _framed(
        _ANSWER.pack(
            answer.correlation_id,
            PEER_PROTOCOL_VERSION,
            answer.refusal,
            answerer.node_id,
            answerer.generation,
            answerer.incarnation,
            answer.silence_ms,
            len(cluster_id),
        )
        + cluster_id
    )


def decode_hello_answer(frame: memoryview | bytes) -> HelloAnswer:
    """Decodes a response, given without its length."""
    try:
        values = _ANSWER.unpack_from(frame)
    except struct.error as error:
        raise ProtocolError("the answer to a hello is truncated") from error
    correlation_id, _, refusal, node, generation, incarnation, silence_ms, length = values
    if refusal > HelloRefusal.TOO_MANY:
        raise ProtocolError(f"unknown refusal {refusal} in the answer to a hello")
    cluster_id = _text(frame, _ANSWER.size, length)
    answerer = _identity(node, generation, cluster_id, incarnation)
    return HelloAnswer(HelloRefusal(refusal), answerer, silence_ms, correlation_id)


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


def _identity(node: int, generation: int, cluster_id: str, incarnation: int) -> PeerIdentity:
    if node > NODE_ID_MAX:
        raise ProtocolError(f"node id {node} is above {NODE_ID_MAX}")
    return PeerIdentity(NodeId(node), generation, cluster_id, incarnation)


def _text(frame: memoryview | bytes, start: int, length: int) -> str:
    """Decodes the text that ends the frame."""
    if start + length != len(frame) or len(frame) > HELLO_BYTES_MAX:
        raise ProtocolError("the length of a hello is wrong or too large")
    try:
        return bytes(frame[start:]).decode()
    except UnicodeDecodeError as error:
        raise ProtocolError("a cluster id is not UTF-8") from error
