"""answer_query(command, state) -> outputs: the reply to a query (an ASK of the edge protocol). Pure.

A query is answered at the home of the user who asks. Only gateways send `account.create`, the one query
with an effect, and `account.credentials`, for a connection that is not authenticated yet. Lists of names
come from the directory, which may lag a moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from kafkaesque.chat.rules.commands import (
    ChatCommand,
    ChatRequest,
    CreateAccount,
    GetCredentials,
    GetHistory,
    ListAccounts,
    ListConversations,
    ListRooms,
    ListUndelivered,
    SubscribeRoom,
)
from kafkaesque.chat.rules.decide_command import DecisionContext, create_account
from kafkaesque.chat.rules.handovers import ReplyTo, RoomRequest
from kafkaesque.chat.rules.names import PAGE_TEXT_BYTES_MAX, conversation_id, is_name
from kafkaesque.chat.rules.outputs import Outputs, QueryReply, RequestRejected
from kafkaesque.chat.rules.state import (
    Account,
    ChatPartitionState,
    Conversation,
    DeliveryStage,
    MessageCopy,
)

_STAGE_NAMES = {stage: stage.name.lower() for stage in DeliveryStage}


class Directory(Protocol):
    """The names of all accounts and rooms."""

    def names(self, kind: str, pattern: str, after: str, limit: int) -> Sequence[str]:
        """Up to `limit` sorted names after `after` that match a pattern with * and ?."""
        ...


def answer_query(
    command: ChatCommand, state: ChatPartitionState, directory: Directory, context: DecisionContext
) -> Outputs:
    outputs = Outputs()
    reply_to = command.reply_to
    if reply_to is None:
        return outputs
    try:
        if isinstance(command.request, CreateAccount | GetCredentials):
            body: dict[str, Any] | None = _for_gateway(command, state, context, outputs)
        else:
            account = state.account(command.user)
            if account is None:
                raise RequestRejected("no-account", f"there is no account {command.user}")
            body = _for_user(account, reply_to, command.request, state, directory, context, outputs)
    except RequestRejected as refusal:
        outputs = Outputs()
        outputs.replies.append(QueryReply(reply_to, code=refusal.code, message=str(refusal)))
        return outputs
    if body is not None:
        outputs.replies.append(QueryReply(reply_to, body))
    return outputs


def _for_gateway(
    command: ChatCommand, state: ChatPartitionState, context: DecisionContext, outputs: Outputs
) -> dict[str, Any]:
    request = command.request
    if not isinstance(request, CreateAccount | GetCredentials) or request.name != command.user:
        raise RequestRejected(
            "forbidden", "the account name is not the one that the connection claims"
        )
    account = state.account(request.name)
    if isinstance(request, CreateAccount):
        if account is None or account.password_hash != request.password_hash:
            # The same hash means the same request, repeated: salts are random.
            create_account(request.name, request.password_hash, state, context, outputs)
        return {"name": request.name}
    if account is None:
        raise RequestRejected("unknown-account", f"there is no account {request.name}")
    if not account.password_hash:
        raise RequestRejected("no-password", f"{request.name} has no password; log in with a token")
    return {"password_hash": account.password_hash}


def _for_user(
    account: Account,
    reply_to: ReplyTo,
    request: ChatRequest,
    state: ChatPartitionState,
    directory: Directory,
    context: DecisionContext,
    outputs: Outputs,
) -> dict[str, Any] | None:
    """The reply's body; None if the home of a room will reply."""
    match request:
        case ListAccounts(pattern, after, limit):
            names = directory.names("account", pattern, after, limit)
            rows = [{"name": name, "online": context.is_online(name)} for name in names]
            return {"accounts": rows, "more": len(rows) == limit}
        case ListRooms(pattern, after, limit):
            names = directory.names("room", pattern, after, limit)
            rooms = [{"room": name, "member": name in account.rooms} for name in names]
            return {"rooms": rooms, "more": len(rooms) == limit, "mine": sorted(account.rooms)}
        case ListConversations(limit):
            return _conversations(account.name, limit, state)
        case ListUndelivered(limit):
            return _undelivered(account.name, limit, state)
        case SubscribeRoom(room):
            if room not in account.rooms:
                raise RequestRejected("not-a-member", f"join {room} first")
            return {"room": room}
        case GetHistory(peer, before, limit) if peer.startswith("#"):
            if not is_name(peer[1:]):
                raise RequestRejected("unknown-room", f"there is no room {peer}")
            outputs.handovers.append(
                RoomRequest(
                    peer[1:],
                    account.name,
                    "room.history",
                    before=before,
                    limit=limit,
                    reply_to=reply_to,
                )
            )
            return None
        case GetHistory(peer, before, limit):
            conversation = state.conversation(account.name, peer) or Conversation(peer)
            body = page_of(list(conversation.messages.by_id.values()), before, limit)
            return {**body, "with": peer, "unread": conversation.unread}
    raise RequestRejected("forbidden", "this operation is not a query")


def _conversations(user: str, limit: int, state: ChatPartitionState) -> dict[str, Any]:
    newest_first = sorted(
        state.conversations.get(user, {}).values(), key=lambda one: (-one.last_ms, one.peer)
    )
    return {
        "conversations": [_summary(user, one) for one in newest_first[:limit]],
        "more": len(newest_first) > limit,
    }


def _summary(user: str, conversation: Conversation) -> dict[str, Any]:
    last = next(reversed(conversation.messages.by_id.values()), None)
    return {
        "with": conversation.peer,
        "conversation_id": conversation_id(user, conversation.peer),
        "unread": conversation.unread,
        "undelivered": conversation.undelivered,
        "last_ms": conversation.last_ms,
        "last_text": "" if last is None else last.text[:80],
        "last_from": "" if last is None else last.sender,
    }


def _undelivered(user: str, limit: int, state: ChatPartitionState) -> dict[str, Any]:
    waiting = [
        message
        for conversation in state.conversations.get(user, {}).values()
        if conversation.undelivered
        for message in conversation.messages.by_id.values()
        if conversation.is_undelivered(message)
    ]
    waiting.sort(key=lambda message: (message.sent_ms, message.id))
    shown = _within_bytes(waiting[:limit])
    return {
        "messages": [message_body(message) for message in shown],
        "more": len(shown) < len(waiting),
    }


def page_of(messages: list[MessageCopy], before: str | None, limit: int) -> dict[str, Any]:
    """The last `limit` messages before the one named `before`, oldest first."""
    end = len(messages)
    if before is not None:
        end = next((at for at, message in enumerate(messages) if message.id == before), 0)
    newest_first = messages[max(0, end - limit) : end][::-1]
    shown = _within_bytes(newest_first)[::-1]
    return {
        "messages": [message_body(message) for message in shown],
        "more": end > len(shown),
    }


def _within_bytes(messages: list[MessageCopy]) -> list[MessageCopy]:
    size_bytes = 0
    for count, message in enumerate(messages):
        size_bytes += message.size_bytes
        if count and size_bytes > PAGE_TEXT_BYTES_MAX:
            return messages[:count]
    return messages


def message_body(message: MessageCopy) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "from": message.sender,
        "text": message.text,
        "sent_ms": message.sent_ms,
        "stage": _STAGE_NAMES[DeliveryStage(message.stage)],
    }
