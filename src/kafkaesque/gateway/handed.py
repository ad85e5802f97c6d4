"""A connection as one process describes it to the next. Values only; `handover` moves the sockets."""

from __future__ import annotations

import msgspec

from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.edge.protocol.framing import Framing, TcpFraming
from kafkaesque.edge.protocol.positions import Position, parse_position
from kafkaesque.edge.protocol.websocket import WebSocketFraming
from kafkaesque.gateway.connection import Connection
from kafkaesque.gateway.rules.outgoing import Outgoing
from kafkaesque.gateway.rules.outlets import Board, From, Outlet
from kafkaesque.gateway.rules.session import Session
from kafkaesque.gateway.rules.stages import Stage
from kafkaesque.gateway.rules.tokens import Identity
from kafkaesque.model.ids import TimestampMs

FORMAT = 1
"""Of what follows. A process that speaks another one refuses the hand-over, and the old one drains."""


class HandedOutlet(msgspec.Struct, frozen=True):
    room: str | None
    position: str
    """What has been sent, or `now`/`earliest` if nothing has been decided yet."""
    announced: bool
    replayed: int


class HandedConnection(msgspec.Struct, frozen=True):
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
    outlets: list[HandedOutlet] = []


def describe(
    connection: Connection, inbox: Board[Outgoing], rooms: Board[Outgoing]
) -> HandedConnection | None:
    """None if it cannot be handed over at this moment: in mid-handshake, in the middle of a fragmented
    message, or while a request of it is under way."""
    session, wire = connection.session, connection.wire
    rest = None if wire is None else wire.rest()
    if wire is None or rest is None or not connection.idle or session.in_flight:
        return None
    identity = session.identity
    outlets = [
        _describe_outlet(board, outlet, room)
        for board, outlet, room in (
            *((inbox, outlet, None) for outlet in (session.inbox,) if outlet is not None),
            *((rooms, outlet, room) for room, outlet in session.rooms.items()),
        )
    ]
    return HandedConnection(
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
        outlets=outlets,
    )


def _describe_outlet(
    board: Board[Outgoing], outlet: Outlet[Outgoing], room: str | None
) -> HandedOutlet:
    if outlet.next_offset >= 0:
        position = str(board.position_of(outlet))
    elif isinstance(outlet.wanted, From):
        position = outlet.wanted.value
    else:
        position = str(outlet.wanted)
    return HandedOutlet(room, position, outlet.announced, outlet.replayed)


def session_of(handed: HandedConnection, now_s: float) -> Session:
    """Without its user and its outlets, which are the new process's own objects."""
    session = Session(handed.id, handed.address, now_s, now_s)
    session.stage = Stage(handed.stage)
    session.app_version, session.client = handed.app_version, handed.client
    session.credit, session.attempts = handed.credit, handed.attempts
    if handed.user is not None:
        session.identity = Identity(
            handed.user, handed.token_id, TimestampMs(handed.expires_ms), handed.own_token
        )
    return session


def wire_of(handed: HandedConnection, frame_max_bytes: int) -> Framing:
    encoding = Encoding(handed.encoding)
    wire: Framing
    if handed.kind == "tcp":
        wire = TcpFraming(encoding, handed.rest)
    else:
        wire = WebSocketFraming(encoding, handed.rest)
    if handed.user is not None:
        wire.allow(frame_max_bytes)
    return wire


def wanted_of(outlet: HandedOutlet) -> Position | From:
    if outlet.position in (From.NOW.value, From.EARLIEST.value):
        return From(outlet.position)
    return parse_position(outlet.position)
