"""The state of a connection as one process passes it to the next. `handover` moves the sockets."""

from __future__ import annotations

import msgspec

from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.edge.protocol.framing import Framing, TcpFraming
from kafkaesque.edge.protocol.positions import Position, parse_position
from kafkaesque.edge.protocol.websocket import WebSocketFraming
from kafkaesque.gateway.client_connection import ClientConnection
from kafkaesque.gateway.rules.fan_out import FanOut, StartFrom, Subscriber
from kafkaesque.gateway.rules.outgoing import OutgoingEvent
from kafkaesque.gateway.rules.session import EdgeSession, SessionStage
from kafkaesque.gateway.rules.tokens import TokenIdentity
from kafkaesque.model.ids import TimestampMs

FORMAT = 1
"""The version of these structures, whose field names are the format. A process with another version refuses
the handover, and the old one drains."""


class SubscriberState(msgspec.Struct, frozen=True):
    room: str | None
    position: str
    """The last position that was delivered, or `now`/`earliest` if the subscriber has not started."""
    announced: bool
    replayed: int


class ConnectionState(msgspec.Struct, frozen=True):
    id: str
    address: str
    stage: str
    kind: str
    encoding: str
    rest: bytes
    app_version: str
    client: str
    credit: int | None
    attempts: int
    user: str | None = None
    token_id: str = ""
    expires_ms: int = 0
    own_token: bool = False
    outlets: list[SubscriberState] = []


def describe(
    connection: ClientConnection, inbox: FanOut[OutgoingEvent], rooms: FanOut[OutgoingEvent]
) -> ConnectionState | None:
    """Returns None if the connection cannot be handed over at this moment: during its handshake, in the
    middle of a fragmented message, or while a request is in flight."""
    session, wire = connection.session, connection.wire
    rest = None if wire is None else wire.rest()
    if wire is None or rest is None or not connection.idle or session.in_flight:
        return None
    identity = session.identity
    subscribers = [
        _describe_subscriber(fan_out, subscriber, room)
        for fan_out, subscriber, room in (
            *((inbox, one, None) for one in (session.inbox,) if one is not None),
            *((rooms, one, room) for room, one in session.rooms.items()),
        )
    ]
    return ConnectionState(
        id=session.id,
        address=session.address,
        stage=session.stage.value,
        kind=wire.kind,
        encoding=wire.encoding.value,
        rest=rest,
        app_version=session.app_version,
        client=session.client,
        credit=session.credit,
        attempts=session.attempts,
        user=None if identity is None else identity.user,
        token_id="" if identity is None else identity.token_id,
        expires_ms=0 if identity is None else identity.expires_ms,
        own_token=identity is not None and identity.own,
        outlets=subscribers,
    )


def _describe_subscriber(
    fan_out: FanOut[OutgoingEvent], subscriber: Subscriber[OutgoingEvent], room: str | None
) -> SubscriberState:
    if subscriber.next_offset >= 0:
        position = str(fan_out.position_of(subscriber))
    elif isinstance(subscriber.start_at, StartFrom):
        position = subscriber.start_at.value
    else:
        position = str(subscriber.start_at)
    return SubscriberState(room, position, subscriber.announced, subscriber.replayed)


def session_from(state: ConnectionState, now_s: float) -> EdgeSession:
    """The session without its user and subscribers, which are objects of the new process."""
    session = EdgeSession(state.id, state.address, now_s, now_s)
    session.stage = SessionStage(state.stage)
    session.app_version, session.client = state.app_version, state.client
    session.credit, session.attempts = state.credit, state.attempts
    if state.user is not None:
        session.identity = TokenIdentity(
            state.user, state.token_id, TimestampMs(state.expires_ms), state.own_token
        )
    return session


def wire_from(state: ConnectionState, frame_max_bytes: int) -> Framing:
    encoding = Encoding(state.encoding)
    wire: Framing
    if state.kind == "tcp":
        wire = TcpFraming(encoding, state.rest)
    else:
        wire = WebSocketFraming(encoding, state.rest)
    if state.user is not None:
        wire.allow(frame_max_bytes)
    return wire


def start_of(subscriber: SubscriberState) -> Position | StartFrom:
    if subscriber.position in (StartFrom.NOW.value, StartFrom.EARLIEST.value):
        return StartFrom(subscriber.position)
    return parse_position(subscriber.position)
