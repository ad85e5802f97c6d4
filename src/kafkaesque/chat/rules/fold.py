"""fold(state, fact) -> state: the only place where the state of chat changes. Pure.

Live processing and replay run the same code, so a partition has the same state wherever it is served.
Nothing is decided here: a fact about an entity that does not exist (any more) changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from kafkaesque.chat.rules.facts import (
    AccountCreated,
    AccountDeleted,
    AnyFact,
    CommandTaken,
    MemberAdded,
    MemberRemoved,
    MessageSent,
    MessageSettled,
    MessagesMarked,
    MessageTaken,
    RoomCreated,
    RoomEntered,
    RoomLeft,
    RoomPosted,
)
from kafkaesque.chat.rules.names import COMMANDS_REMEMBERED_MAX, CONVERSATIONS_MAX
from kafkaesque.chat.rules.state import (
    Account,
    ChatPartitionState,
    Conversation,
    DeliveryStage,
    EntityKey,
    MessageCopy,
    Room,
)


def fold_all(state: ChatPartitionState, facts: Iterable[AnyFact]) -> ChatPartitionState:
    for fact in facts:
        fold(state, fact)
    return state


def fold(state: ChatPartitionState, fact: AnyFact) -> ChatPartitionState:
    """Applies `fact` to `state` in place and returns it."""
    match fact:
        case AccountCreated():
            state.accounts[fact.user] = Account(fact.user, fact.password_hash, fact.at_ms)
            state.dirty.add(EntityKey("account", fact.user))
        case AccountDeleted():
            _delete_account(state, fact)
        case CommandTaken():
            _take_command(state, fact)
        case MessageSent():
            message = MessageCopy(
                fact.message_id, fact.user, fact.text, fact.sent_ms, DeliveryStage.SENDING
            )
            _add_message(state, fact.user, fact.to, message)
        case MessageTaken():
            message = MessageCopy(fact.message_id, fact.sender, fact.text, fact.sent_ms)
            _add_message(state, fact.user, fact.sender, message)
        case MessageSettled() | MessagesMarked():
            conversation = state.conversation(fact.user, fact.peer)
            if conversation is not None:
                conversation.advance(fact.message_ids, fact.stage)
                state.dirty.add(EntityKey("conversation", fact.user, fact.peer))
        case RoomEntered() | RoomLeft():
            _move_user(state, fact)
        case _:
            _fold_room(state, fact)
    return state


def _delete_account(state: ChatPartitionState, fact: AccountDeleted) -> None:
    account = state.accounts.get(fact.user)
    if account is None:
        return
    account.deleted_ms = fact.at_ms
    account.password_hash = ""
    account.rooms = {}
    account.taken = {}
    state.dirty.add(EntityKey("account", fact.user))
    for peer in state.conversations.pop(fact.user, {}):
        state.dirty.add(EntityKey("conversation", fact.user, peer))


def _take_command(state: ChatPartitionState, fact: CommandTaken) -> None:
    account = state.accounts.get(fact.user)
    if account is None:
        return
    account.taken[fact.id] = None
    if len(account.taken) > COMMANDS_REMEMBERED_MAX:
        del account.taken[next(iter(account.taken))]
    state.dirty.add(EntityKey("account", fact.user))


def _add_message(state: ChatPartitionState, user: str, peer: str, message: MessageCopy) -> None:
    if state.account(user) is None:
        return
    conversations = state.conversations.setdefault(user, {})
    conversation = conversations.setdefault(peer, Conversation(peer))
    conversation.add(message)
    state.dirty.add(EntityKey("conversation", user, peer))
    if len(conversations) > CONVERSATIONS_MAX:
        # `check_conversations` refuses a new conversation while all have undelivered messages, so there
        # is one to drop.
        stale = [old for old in conversations.values() if not old.undelivered and old.peer != peer]
        if stale:
            oldest = min(stale, key=lambda old: (old.last_ms, old.peer)).peer
            del conversations[oldest]
            state.dirty.add(EntityKey("conversation", user, oldest))


def _move_user(state: ChatPartitionState, fact: RoomEntered | RoomLeft) -> None:
    account = state.account(fact.user)
    if account is None:
        return
    if isinstance(fact, RoomEntered):
        account.rooms[fact.room] = None
    else:
        account.rooms.pop(fact.room, None)
    state.dirty.add(EntityKey("account", fact.user))


def _fold_room(
    state: ChatPartitionState, fact: RoomCreated | MemberAdded | MemberRemoved | RoomPosted
) -> None:
    if isinstance(fact, RoomCreated):
        state.rooms[fact.room] = Room(fact.room, fact.by, fact.at_ms, {fact.by: None})
    elif (room := state.rooms.get(fact.room)) is None:
        return
    elif isinstance(fact, MemberAdded):
        room.members[fact.user] = None
    elif isinstance(fact, MemberRemoved):
        room.members.pop(fact.user, None)
    else:
        room.add(MessageCopy(fact.message_id, fact.sender, fact.text, fact.sent_ms))
    state.dirty.add(EntityKey("room", fact.room))
