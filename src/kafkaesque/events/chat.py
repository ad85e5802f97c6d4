"""Chat: the events of its messages, for the pipeline and tasks, and the topics of its back ends.

`chat.events` holds facts without content: sender, recipient and time, never the text. Every stage of a
message carries `sent_ms`, so that computing a latency needs no join. The stages of a message are in
order, because one back end at a time writes for a recipient.

The other topics are internal to the back ends (chat/ defines their records). They are declared here
because operators of the log have to recognise them.
"""

from __future__ import annotations

from typing import ClassVar

from kafkaesque.events.envelope import Body, Envelope, Vocabulary
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import TimestampMs

SOURCE = "chat"
_DAY_MS = 24 * 3_600_000
_COMPACTED = {"cleanup.policy": "compact"}
COMMAND_PARTITIONS = 8
"""Partitions of gw.cmd.*, and of every topic that is partitioned like the users' commands."""

CHAT_EVENTS = TopicSpec(
    name="chat.events",
    partitions=4,
    key="CONVERSATION ID",
    doc="Stages of messages: sent, queued, delivered, read, deleted. No text.",
    configs={"retention.ms": str(30 * _DAY_MS)},
)
CHAT_JOURNAL = TopicSpec(
    name="chat.journal",
    partitions=COMMAND_PARTITIONS,
    key="USER or ROOM",
    doc="Facts from which the state of chat is folded. The source of truth: kept forever.",
    configs={"retention.ms": "-1"},
)
CHAT_SNAPSHOT = TopicSpec(
    name="chat.snapshot",
    partitions=COMMAND_PARTITIONS,
    key="ENTITY",
    doc="State as of a journal offset, one record per entity, so that a restore need not read all of the journal.",
    configs=_COMPACTED,
)
CHAT_HANDOVER = TopicSpec(
    name="chat.handover",
    partitions=COMMAND_PARTITIONS,
    key="USER or ROOM",
    doc="Messages from the home of one user or room to the home of another.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
CHAT_DIRECTORY = TopicSpec(
    name="chat.directory",
    partitions=1,
    key="account/NAME or room/NAME",
    doc="Names of all accounts and rooms, for lists.",
    configs=_COMPACTED,
)
CHAT_OWNERS = TopicSpec(
    name="chat.owners",
    partitions=1,
    key="PARTITION",
    doc="Which writer serves a partition: its successor ends the open transaction of a dead writer.",
    configs=_COMPACTED,
)
CHAT_TOPICS = (
    CHAT_EVENTS,
    CHAT_JOURNAL,
    CHAT_SNAPSHOT,
    CHAT_HANDOVER,
    CHAT_DIRECTORY,
    CHAT_OWNERS,
)


class MessageStage(Body, frozen=True, kw_only=True):
    """Base of the stages of a message."""

    STAGE: ClassVar[str]

    message_id: str
    conversation_id: str
    sender: str
    recipient: str
    """An account, or `#ROOM`."""
    sent_ms: TimestampMs

    @property
    def stage_ms(self) -> TimestampMs:
        return self.sent_ms


class MessageSent(MessageStage, frozen=True, kw_only=True):
    """The recipient exists, and the message is in the recipient's inbox."""

    KIND: ClassVar[str] = "chat.message.sent"
    STAGE: ClassVar[str] = "sent"


class MessageQueued(MessageStage, frozen=True, kw_only=True):
    """It was sent while the recipient was not connected."""

    KIND: ClassVar[str] = "chat.message.queued"
    STAGE: ClassVar[str] = "queued"


class MessageDelivered(MessageStage, frozen=True, kw_only=True):
    """A client of the recipient has received it."""

    KIND: ClassVar[str] = "chat.message.delivered"
    STAGE: ClassVar[str] = "delivered"

    delivered_ms: TimestampMs

    @property
    def stage_ms(self) -> TimestampMs:
        return self.delivered_ms


class MessageRead(MessageStage, frozen=True, kw_only=True):
    """The recipient has seen it."""

    KIND: ClassVar[str] = "chat.message.read"
    STAGE: ClassVar[str] = "read"

    read_ms: TimestampMs

    @property
    def stage_ms(self) -> TimestampMs:
        return self.read_ms


class MessageDeleted(MessageStage, frozen=True, kw_only=True):
    """It was not yet delivered when the recipient's account was deleted."""

    KIND: ClassVar[str] = "chat.message.deleted"
    STAGE: ClassVar[str] = "deleted"

    deleted_ms: TimestampMs

    @property
    def stage_ms(self) -> TimestampMs:
        return self.deleted_ms


CHAT = Vocabulary(MessageSent, MessageQueued, MessageDelivered, MessageRead, MessageDeleted)


def stage_envelope(body: MessageStage) -> Envelope[MessageStage]:
    """A stage of a message always has the same id, so that duplicates can be dropped."""
    return Envelope(f"{body.message_id}#{body.STAGE}", body.stage_ms, SOURCE, body)
