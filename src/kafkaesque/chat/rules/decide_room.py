"""decide_room_request(request, state): the effects of a request at the home of a room. Pure.

The room's home is authoritative for membership. Each member's home keeps a copy, from which
`room.subscribe` is answered. Posts are written once, to the room, and the gateways fan them out.
"""

from __future__ import annotations

from typing import Any

from kafkaesque.chat.rules.answer_query import page_of
from kafkaesque.chat.rules.decide_command import DecisionContext
from kafkaesque.chat.rules.facts import MemberAdded, MemberRemoved, RoomCreated, RoomPosted
from kafkaesque.chat.rules.handovers import RoomAnswer, RoomRequest
from kafkaesque.chat.rules.names import MEMBERS_MAX, room_conversation_id
from kafkaesque.chat.rules.outputs import (
    DirectoryEntry,
    Outputs,
    QueryReply,
    RequestRejected,
    RoomEvent,
)
from kafkaesque.chat.rules.state import ChatPartitionState, Room
from kafkaesque.events.chat import MessageSent
from kafkaesque.model.ids import TimestampMs

HISTORY = "room.history"


def decide_room_request(
    request: RoomRequest, state: ChatPartitionState, context: DecisionContext, outputs: Outputs
) -> None:
    code = message = None
    try:
        if request.op == HISTORY:
            _history(request, state, outputs)
            return
        _decide(request, state, context, outputs)
    except RequestRejected as refusal:
        code, message = refusal.code, str(refusal)
    if request.reply_to is not None:
        outputs.replies.append(QueryReply(request.reply_to, code=code, message=message))
    elif request.command_id:
        outputs.handovers.append(
            RoomAnswer(
                request.user,
                request.to,
                request.op,
                request.command_id,
                request.message_id,
                code,
                message,
            )
        )


def _decide(
    request: RoomRequest, state: ChatPartitionState, context: DecisionContext, outputs: Outputs
) -> None:
    name, user = request.to, request.user
    room = state.rooms.get(name)
    if request.op == "room.create":
        if room is not None:
            raise RequestRejected("name-taken", f"room {name} already exists")
        outputs.facts.append(RoomCreated(name, user, context.now_ms))
        outputs.directory.append(DirectoryEntry("room", name, context.now_ms))
        return
    if room is None:
        raise RequestRejected("unknown-room", f"there is no room {name}")
    match request.op:
        case "room.join":
            _join(room, user, context, outputs)
        case "room.leave":
            if user in room.members:
                outputs.facts.append(MemberRemoved(name, user))
                _publish(outputs, name, "room.left", {"user": user, "at_ms": context.now_ms})
        case _:
            _post(room, request, outputs)


def _join(room: Room, user: str, context: DecisionContext, outputs: Outputs) -> None:
    if user in room.members:
        return
    if len(room.members) >= MEMBERS_MAX:
        raise RequestRejected("room-full", f"{room.name} has {MEMBERS_MAX} members")
    outputs.facts.append(MemberAdded(room.name, user))
    _publish(outputs, room.name, "room.joined", {"user": user, "at_ms": context.now_ms})


def _post(room: Room, request: RoomRequest, outputs: Outputs) -> None:
    if request.user not in room.members:
        raise RequestRejected("not-a-member", f"join {room.name} first")
    if request.message_id in room.messages.by_id:
        raise RequestRejected("repeated-id", f"message {request.message_id} was posted before")
    outputs.facts.append(
        RoomPosted(room.name, request.user, request.message_id, request.text, request.at_ms)
    )
    body = {
        "message_id": request.message_id,
        "conversation_id": room_conversation_id(room.name),
        "from": request.user,
        "text": request.text,
        "sent_ms": request.at_ms,
    }
    _publish(outputs, room.name, "room.message", body)
    outputs.stages.append(
        MessageSent(
            message_id=request.message_id,
            conversation_id=room_conversation_id(room.name),
            sender=request.user,
            recipient=room_conversation_id(room.name),
            sent_ms=TimestampMs(request.at_ms),
        )
    )


def _publish(outputs: Outputs, room: str, kind: str, body: dict[str, Any]) -> None:
    outputs.rooms.append(RoomEvent(room, kind, {"room": room, **body}))


def _history(request: RoomRequest, state: ChatPartitionState, outputs: Outputs) -> None:
    room = state.rooms.get(request.to)
    if room is None or request.user not in room.members:
        raise RequestRejected("not-a-member", f"{request.user} is not a member of {request.to}")
    if request.reply_to is not None:
        body = page_of(list(room.messages.by_id.values()), request.before, request.limit)
        body |= {"with": room_conversation_id(room.name), "members": sorted(room.members)}
        outputs.replies.append(QueryReply(request.reply_to, body))
