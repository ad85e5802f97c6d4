"""The state of one partition: its accounts, their conversations, its rooms. Only `fold` changes it.

Everything is bounded (limits in names.py). A snapshot stores the entities: accounts, conversations (each
participant's home has its own copy) and rooms. `dirty` names those that changed since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import msgspec

from kafkaesque.chat.rules.names import MESSAGES_KEPT_MAX, TEXT_KEPT_BYTES_MAX


class DeliveryStage(IntEnum):
    """How far a message has come. A message's stage only increases."""

    SENDING = 0
    QUEUED = 1
    DELIVERED = 2
    READ = 3
    FAILED = 4


class MessageCopy(msgspec.Struct, array_like=True):
    """One participant's copy of a message."""

    id: str
    sender: str
    text: str
    sent_ms: int
    stage: int = int(DeliveryStage.QUEUED)

    @property
    def size_bytes(self) -> int:
        return len(self.text.encode())


class Messages(msgspec.Struct):
    """The last messages of a conversation or room, oldest first."""

    by_id: dict[str, MessageCopy] = {}
    size_bytes: int = 0

    def add(self, message: MessageCopy) -> None:
        self.by_id[message.id] = message
        self.size_bytes += message.size_bytes

    def drop(self, message: MessageCopy) -> None:
        del self.by_id[message.id]
        self.size_bytes -= message.size_bytes

    def overflow(self) -> bool:
        return len(self.by_id) > MESSAGES_KEPT_MAX or self.size_bytes > TEXT_KEPT_BYTES_MAX


class Conversation(msgspec.Struct):
    """One user's side of the conversation with `peer`."""

    peer: str
    messages: Messages = msgspec.field(default_factory=Messages)
    unread: int = 0
    undelivered: int = 0
    undelivered_bytes: int = 0
    last_ms: int = 0

    def is_undelivered(self, message: MessageCopy) -> bool:
        return message.sender == self.peer and message.stage < DeliveryStage.DELIVERED

    def is_unread(self, message: MessageCopy) -> bool:
        return message.sender == self.peer and message.stage < DeliveryStage.READ

    def add(self, message: MessageCopy) -> None:
        if message.id in self.messages.by_id:
            return
        self.messages.add(message)
        self._count(message, 1)
        self.last_ms = max(self.last_ms, message.sent_ms)
        if self.messages.overflow():
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        for message in list(self.messages.by_id.values()):
            if not self.messages.overflow():
                return
            if not self.is_undelivered(message):
                self._count(message, -1)
                self.messages.drop(message)

    def _count(self, message: MessageCopy, sign: int) -> None:
        self.unread += sign * self.is_unread(message)
        if self.is_undelivered(message):
            self.undelivered += sign
            self.undelivered_bytes += sign * message.size_bytes

    def advance(self, message_ids: Iterable[str], stage: int) -> None:
        """Moves messages to `stage`. Unknown ids were dropped meanwhile and are ignored."""
        for one in message_ids:
            message = self.messages.by_id.get(one)
            if message is not None and message.stage < stage:
                self._count(message, -1)
                message.stage = stage
                self._count(message, 1)


class Account(msgspec.Struct):
    """One account. A deleted one is kept, so that no new account gets its name and its inbox."""

    name: str
    password_hash: str
    created_ms: int
    deleted_ms: int | None = None
    taken: dict[str, None] = {}
    """Ids of the user's last commands, oldest first, to detect repeats."""
    rooms: dict[str, None] = {}

    @property
    def is_open(self) -> bool:
        return self.deleted_ms is None


class Room(msgspec.Struct):
    """A room, stored at its own home."""

    name: str
    created_by: str
    created_ms: int
    members: dict[str, None] = {}
    messages: Messages = msgspec.field(default_factory=Messages)

    def add(self, message: MessageCopy) -> None:
        if message.id in self.messages.by_id:
            return
        self.messages.add(message)
        while self.messages.overflow():
            self.messages.drop(next(iter(self.messages.by_id.values())))


class EntityKey(NamedTuple):
    """Identifies an entity. `kind` is account, conversation or room; only conversations have a `peer`."""

    kind: str
    name: str
    peer: str = ""


class ChatPartitionState:
    """All entities of one partition."""

    def __init__(self) -> None:
        self.accounts: dict[str, Account] = {}
        self.conversations: dict[str, dict[str, Conversation]] = {}
        """By user, then by peer."""
        self.rooms: dict[str, Room] = {}
        self.dirty: set[EntityKey] = set()

    def account(self, name: str) -> Account | None:
        """None if it does not exist or was deleted."""
        account = self.accounts.get(name)
        return account if account is not None and account.is_open else None

    def conversation(self, user: str, peer: str) -> Conversation | None:
        return self.conversations.get(user, {}).get(peer)

    def has_taken(self, user: str, command_id: str) -> bool:
        account = self.accounts.get(user)
        return account is not None and command_id in account.taken

    def same_as(self, other: ChatPartitionState) -> bool:
        """Whether both hold equal entities."""
        return (
            self.accounts == other.accounts
            and self.conversations == other.conversations
            and self.rooms == other.rooms
        )
