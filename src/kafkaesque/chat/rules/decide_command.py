"""decide_command(command, state) -> outputs: the effects of a command at its user's home. Pure.

Deciding does not change the state; the caller folds the resulting facts (fold.py). Queries are answered
in answer_query.py, hand-overs from other homes in decide_handover.py, room requests in decide_room.py.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from kafkaesque.chat.rules.commands import (
    ChatCommand,
    CreateRoom,
    DeleteAccount,
    JoinRoom,
    LeaveRoom,
    MalformedCommand,
    MarkRead,
    MarkReceived,
    OpenAccount,
    PostToRoom,
    SendMessage,
    Typing,
)
from kafkaesque.chat.rules.facts import (
    AccountCreated,
    AccountDeleted,
    CommandTaken,
    MessageSent,
    MessagesMarked,
)
from kafkaesque.chat.rules.handovers import Deliver, Receipt, RoomRequest, TypingSeen, Undeliverable
from kafkaesque.chat.rules.names import (
    CONVERSATIONS_MAX,
    NAME_RULE,
    ROOMS_OF_USER_MAX,
    TEXT_LENGTH_MAX,
    conversation_id,
    is_id,
    is_name,
    is_text,
    message_id,
    sender_of,
)
from kafkaesque.chat.rules.outputs import (
    DirectoryEntry,
    InboxEvent,
    Outputs,
    QueryReply,
    RequestRejected,
)
from kafkaesque.chat.rules.state import (
    Account,
    ChatPartitionState,
    Conversation,
    DeliveryStage,
    MessageCopy,
)
from kafkaesque.events.chat import MessageDeleted, MessageDelivered, MessageRead
from kafkaesque.model.ids import TimestampMs


@dataclass(frozen=True, slots=True)
class DecisionContext:
    """The inputs of a decision besides the command and its partition's state."""

    now_ms: int
    is_online: Callable[[str], bool]


def decide_command(
    command: ChatCommand, state: ChatPartitionState, context: DecisionContext
) -> Outputs:
    """The effects of a command. A repeated command has none."""
    if state.has_taken(command.user, command.id):
        return Outputs(is_repeat=True)
    outputs = Outputs()
    try:
        if isinstance(command.request, OpenAccount):
            _open_account(command, state, context, outputs)
        else:
            account = state.account(command.user)
            if account is None:
                raise RequestRejected("no-account", f"there is no account {command.user}")
            _decide_for(account, command, state, context, outputs)
    except RequestRejected as refusal:
        outputs = Outputs()
        outputs.refuse(command.user, command.id, refusal.code, str(refusal))
    if not isinstance(command.request, MarkReceived | MarkRead | Typing):
        # Receipts and typing are idempotent; the ids of all other commands are remembered. Nothing is
        # remembered for users without an account, or strangers could fill the memory.
        outputs.facts.append(CommandTaken(command.user, command.id))
    if state.accounts.get(command.user) is None and not _creates(outputs):
        outputs.facts.clear()
    return outputs


def _creates(outputs: Outputs) -> bool:
    return any(isinstance(fact, AccountCreated) for fact in outputs.facts)


def _decide_for(
    account: Account,
    command: ChatCommand,
    state: ChatPartitionState,
    context: DecisionContext,
    outputs: Outputs,
) -> None:
    match command.request:
        case SendMessage():
            _send(command, command.request, state, outputs)
        case MarkReceived(ids):
            _mark(command.user, ids, DeliveryStage.DELIVERED, state, context, outputs)
        case MarkRead(ids):
            _mark(command.user, ids, DeliveryStage.READ, state, context, outputs)
        case Typing(to):
            if is_name(to) and to != command.user:
                outputs.handovers.append(TypingSeen(to, command.user, context.now_ms))
        case DeleteAccount():
            _delete(account, command, state, context, outputs)
        case CreateRoom() | JoinRoom() | LeaveRoom() | PostToRoom():
            _request_room(account, command, command.request, outputs)


def _open_account(
    command: ChatCommand, state: ChatPartitionState, context: DecisionContext, outputs: Outputs
) -> None:
    if state.account(command.user) is None:
        create_account(command.user, "", state, context, outputs)
    outputs.result(command.user, command.id, {"name": command.user})


def create_account(
    name: str,
    password_hash: str,
    state: ChatPartitionState,
    context: DecisionContext,
    outputs: Outputs,
) -> None:
    """Refuses a name that is or was ever taken: its inbox may still hold the old account's events."""
    if not is_name(name):
        raise RequestRejected("bad-name", f"a name has {NAME_RULE}")
    if name in state.accounts:
        raise RequestRejected("name-taken", f"the name {name} is taken")
    outputs.facts.append(AccountCreated(name, password_hash, context.now_ms))
    outputs.directory.append(DirectoryEntry("account", name, context.now_ms))


def check_text(text: str) -> None:
    if not is_text(text):
        raise RequestRejected(
            "bad-text", f"a text has 1 to {TEXT_LENGTH_MAX} characters and no control characters"
        )


def _new_message_id(command: ChatCommand, wanted: str | None) -> str:
    if wanted is not None and not is_id(wanted):
        raise RequestRejected("bad-id", "a message_id is short, printable and contains no /")
    return message_id(command.user, wanted or command.id)


def _send(
    command: ChatCommand, request: SendMessage, state: ChatPartitionState, outputs: Outputs
) -> None:
    """Hands the message over to the recipient's home, which answers whether it was accepted."""
    user, to = command.user, request.to
    check_text(request.text)
    if to == user:
        raise RequestRejected("to-yourself", "the recipient must not be the sender")
    if not is_name(to):
        raise RequestRejected("unknown-recipient", f"there is no account {to}")
    one_id = _new_message_id(command, request.message_id)
    conversation = state.conversation(user, to)
    if conversation is None:
        check_conversations(state, user)
    elif one_id in conversation.messages.by_id:
        raise RequestRejected("repeated-id", f"message {one_id} was sent before")
    outputs.facts.append(MessageSent(user, to, one_id, request.text, command.sent_ms))
    outputs.handovers.append(Deliver(to, user, command.id, one_id, request.text, command.sent_ms))


def check_conversations(state: ChatPartitionState, user: str) -> None:
    """Refuses a new conversation if no old one can be dropped: all have undelivered messages."""
    mine = state.conversations.get(user, {})
    if len(mine) >= CONVERSATIONS_MAX and all(one.undelivered for one in mine.values()):
        raise RequestRejected(
            "mailbox-full", f"{user} has too many conversations with undelivered messages"
        )


def _mark(
    user: str,
    message_ids: tuple[str, ...],
    stage: DeliveryStage,
    state: ChatPartitionState,
    context: DecisionContext,
    outputs: Outputs,
) -> None:
    """Marks messages as delivered or read. Ids that are unknown, dropped or already marked are
    skipped, so a mark may be repeated."""
    by_peer: dict[str, list[str]] = defaultdict(list)
    for one_id in dict.fromkeys(message_ids):
        peer = sender_of(one_id)
        conversation = state.conversation(user, peer)
        message = None if conversation is None else conversation.messages.by_id.get(one_id)
        if message is None or message.sender != peer or message.stage >= stage:
            continue
        by_peer[peer].append(one_id)
        _note_stages(user, message, stage, context, outputs)
    for peer, ids in by_peer.items():
        outputs.facts.append(MessagesMarked(user, peer, tuple(ids), stage))
        outputs.handovers.append(Receipt(peer, user, tuple(ids), stage, context.now_ms))


def _note_stages(
    user: str,
    message: MessageCopy,
    stage: DeliveryStage,
    context: DecisionContext,
    outputs: Outputs,
) -> None:
    """A message that is read without having been received counts as delivered too."""
    facts = {
        "message_id": message.id,
        "conversation_id": conversation_id(user, message.sender),
        "sender": message.sender,
        "recipient": user,
    }
    sent_ms, now_ms = TimestampMs(message.sent_ms), TimestampMs(context.now_ms)
    if message.stage < DeliveryStage.DELIVERED:
        outputs.stages.append(MessageDelivered(**facts, sent_ms=sent_ms, delivered_ms=now_ms))
    if stage >= DeliveryStage.READ:
        outputs.stages.append(MessageRead(**facts, sent_ms=sent_ms, read_ms=now_ms))


def _delete(
    account: Account,
    command: ChatCommand,
    state: ChatPartitionState,
    context: DecisionContext,
    outputs: Outputs,
) -> None:
    """Deletes the account and its undelivered messages, and notifies their senders."""
    user, now_ms = account.name, context.now_ms
    outputs.facts.append(AccountDeleted(user, now_ms))
    for conversation in state.conversations.get(user, {}).values():
        waiting = _undelivered(conversation)
        if not waiting:
            continue
        ids = tuple(message.id for message in waiting)
        outputs.handovers.append(
            Undeliverable(conversation.peer, user, ids, "account-deleted", now_ms)
        )
        outputs.stages += [
            MessageDeleted(
                message_id=message.id,
                conversation_id=conversation_id(user, message.sender),
                sender=message.sender,
                recipient=user,
                sent_ms=TimestampMs(message.sent_ms),
                deleted_ms=TimestampMs(now_ms),
            )
            for message in waiting
        ]
    outputs.handovers += [RoomRequest(room, user, "room.leave") for room in account.rooms]
    outputs.directory.append(DirectoryEntry("account", user, None))
    outputs.result(user, command.id, {"name": user})
    outputs.inbox.append(InboxEvent(user, "account.deleted", {"name": user}))


def _undelivered(conversation: Conversation) -> list[MessageCopy]:
    if not conversation.undelivered:
        return []
    messages = conversation.messages.by_id.values()
    return [message for message in messages if conversation.is_undelivered(message)]


def _request_room(
    account: Account,
    command: ChatCommand,
    request: CreateRoom | JoinRoom | LeaveRoom | PostToRoom,
    outputs: Outputs,
) -> None:
    room = request.room
    if not is_name(room):
        raise RequestRejected("bad-name", f"a name has {NAME_RULE}")
    text = one_id = ""
    match request:
        case CreateRoom():
            op = "room.create"
        case JoinRoom():
            op = "room.join"
        case LeaveRoom():
            op = "room.leave"
        case PostToRoom():
            op, text = "room.post", request.text
            check_text(text)
            one_id = _new_message_id(command, request.message_id)
    enters = op in ("room.create", "room.join") and room not in account.rooms
    if enters and len(account.rooms) >= ROOMS_OF_USER_MAX:
        raise RequestRejected(
            "too-many-rooms", f"a user can be in at most {ROOMS_OF_USER_MAX} rooms"
        )
    outputs.handovers.append(
        RoomRequest(
            room, account.name, op, command.id, text, message_id=one_id, at_ms=command.sent_ms
        )
    )


def reject(bad: MalformedCommand) -> Outputs:
    """The error reply or result for a malformed command, if its sender is known."""
    outputs = Outputs()
    if bad.reply_to is not None:
        outputs.replies.append(QueryReply(bad.reply_to, code=bad.code, message=str(bad)))
    elif bad.user and bad.id:
        outputs.refuse(bad.user, bad.id, bad.code, str(bad))
    return outputs
