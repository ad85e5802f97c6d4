"""decide_handover(handover, state) -> outputs: the effects of a hand-over at the receiving home. Pure.

The recipient's home holds the recipient's account, so it decides whether a message is accepted. The
sender's home tracks the stage of sent messages and notifies the sender.
"""

from __future__ import annotations

from kafkaesque.chat.rules.decide_command import DecisionContext, check_conversations
from kafkaesque.chat.rules.decide_room import decide_room_request
from kafkaesque.chat.rules.facts import MessageSettled, MessageTaken, RoomEntered, RoomLeft
from kafkaesque.chat.rules.handovers import (
    Answered,
    AnyHandover,
    Deliver,
    Receipt,
    RoomAnswer,
    RoomRequest,
    TypingSeen,
    Undeliverable,
)
from kafkaesque.chat.rules.names import UNDELIVERED_BYTES_MAX, UNDELIVERED_MAX, conversation_id
from kafkaesque.chat.rules.outputs import InboxEvent, Outputs, RequestRejected
from kafkaesque.chat.rules.state import ChatPartitionState, DeliveryStage
from kafkaesque.events.chat import MessageQueued, MessageSent
from kafkaesque.model.ids import TimestampMs

_EVENT_OF_STAGE = {DeliveryStage.DELIVERED: "message.delivered", DeliveryStage.READ: "message.read"}


def decide_handover(
    handover: AnyHandover, state: ChatPartitionState, context: DecisionContext
) -> Outputs:
    outputs = Outputs()
    match handover:
        case Deliver():
            _deliver(handover, state, context, outputs)
        case Answered():
            _answered(handover, state, outputs)
        case Receipt():
            _receipt(handover, state, outputs)
        case Undeliverable():
            _undeliverable(handover, state, outputs)
        case TypingSeen(to, sender, at_ms):
            if state.account(to) is not None and context.is_online(to):
                body = {"from": sender, "at_ms": at_ms}
                outputs.inbox.append(InboxEvent(to, "typing", body))
        case RoomRequest():
            decide_room_request(handover, state, context, outputs)
        case RoomAnswer():
            _room_answered(handover, state, outputs)
    return outputs


def _deliver(
    handover: Deliver, state: ChatPartitionState, context: DecisionContext, outputs: Outputs
) -> None:
    to, sender = handover.to, handover.sender
    answer = Answered(sender, to, handover.command_id, handover.message_id, handover.sent_ms)
    try:
        _check_mailbox(handover, state)
    except RequestRejected as refusal:
        refused = Answered(
            sender, to, handover.command_id, handover.message_id, handover.sent_ms,
            refusal.code, str(refusal),
        )  # fmt: skip
        outputs.handovers.append(refused)
        return
    outputs.handovers.append(answer)
    outputs.facts.append(
        MessageTaken(to, sender, handover.message_id, handover.text, handover.sent_ms)
    )
    body = {
        "message_id": handover.message_id,
        "conversation_id": conversation_id(sender, to),
        "from": sender,
        "text": handover.text,
        "sent_ms": handover.sent_ms,
    }
    outputs.inbox.append(InboxEvent(to, "message.new", body))
    for kind in (MessageSent,) if context.is_online(to) else (MessageSent, MessageQueued):
        outputs.stages.append(
            kind(
                message_id=handover.message_id,
                conversation_id=conversation_id(sender, to),
                sender=sender,
                recipient=to,
                sent_ms=TimestampMs(handover.sent_ms),
            )
        )


def _check_mailbox(handover: Deliver, state: ChatPartitionState) -> None:
    to = handover.to
    if state.account(to) is None:
        raise RequestRejected("unknown-recipient", f"there is no account {to}")
    conversation = state.conversation(to, handover.sender)
    if conversation is None:
        check_conversations(state, to)
        return
    size_bytes = conversation.undelivered_bytes + len(handover.text.encode())
    if conversation.undelivered >= UNDELIVERED_MAX or size_bytes > UNDELIVERED_BYTES_MAX:
        raise RequestRejected("mailbox-full", f"{to} has too many undelivered messages from you")


def _answered(handover: Answered, state: ChatPartitionState, outputs: Outputs) -> None:
    user = handover.to
    if state.account(user) is None:
        return
    stage = DeliveryStage.QUEUED if handover.code is None else DeliveryStage.FAILED
    outputs.facts.append(MessageSettled(user, handover.peer, (handover.message_id,), stage))
    if handover.code is not None:
        outputs.refuse(
            user, handover.command_id, handover.code, handover.message or handover.code,
            message_id=handover.message_id,
        )  # fmt: skip
        return
    body = {
        "message_id": handover.message_id,
        "conversation_id": conversation_id(user, handover.peer),
        "sent_ms": handover.sent_ms,
    }
    outputs.result(user, handover.command_id, body)


def _receipt(handover: Receipt, state: ChatPartitionState, outputs: Outputs) -> None:
    user = handover.to
    if state.account(user) is None:
        return
    outputs.facts.append(MessageSettled(user, handover.peer, handover.message_ids, handover.stage))
    for one_id in handover.message_ids:
        body = {
            "message_id": one_id,
            "conversation_id": conversation_id(user, handover.peer),
            "by": handover.peer,
            "at_ms": handover.at_ms,
        }
        outputs.inbox.append(InboxEvent(user, _EVENT_OF_STAGE[DeliveryStage(handover.stage)], body))


def _undeliverable(handover: Undeliverable, state: ChatPartitionState, outputs: Outputs) -> None:
    user = handover.to
    if state.account(user) is None:
        return
    outputs.facts.append(
        MessageSettled(user, handover.peer, handover.message_ids, DeliveryStage.FAILED)
    )
    for one_id in handover.message_ids:
        body = {
            "message_id": one_id,
            "conversation_id": conversation_id(user, handover.peer),
            "to": handover.peer,
            "code": handover.code,
        }
        outputs.inbox.append(InboxEvent(user, "message.undeliverable", body))


def _room_answered(handover: RoomAnswer, state: ChatPartitionState, outputs: Outputs) -> None:
    user, room = handover.to, handover.room
    account = state.account(user)
    if account is None:
        # The account was deleted while it joined: the room must not keep it as a member.
        if handover.code is None and handover.op in ("room.create", "room.join"):
            outputs.handovers.append(RoomRequest(room, user, "room.leave"))
        return
    if handover.code is not None:
        outputs.refuse(user, handover.command_id, handover.code, handover.message or handover.code)
        return
    if handover.op in ("room.create", "room.join"):
        outputs.facts.append(RoomEntered(user, room))
    elif handover.op == "room.leave":
        outputs.facts.append(RoomLeft(user, room))
    if handover.command_id:
        body = {"room": room}
        if handover.message_id:
            body["message_id"] = handover.message_id
        outputs.result(user, handover.command_id, body)
