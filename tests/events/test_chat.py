from __future__ import annotations

import pytest

from kafkaesque.events.chat import (
    CHAT,
    CHAT_HANDOVER,
    CHAT_JOURNAL,
    CHAT_SNAPSHOT,
    MessageDeleted,
    MessageDelivered,
    MessageQueued,
    MessageRead,
    MessageSent,
    MessageStage,
    stage_envelope,
)
from kafkaesque.events.envelope import encode
from kafkaesque.events.gateway import COMMANDS
from kafkaesque.model.ids import TimestampMs

FACTS = {
    "message_id": "ann/1",
    "conversation_id": "ann~bob",
    "sender": "ann",
    "recipient": "bob",
    "sent_ms": TimestampMs(5),
}


@pytest.mark.parametrize(
    ("body", "event_id", "time_ms"),
    [
        (MessageSent(**FACTS), "ann/1#sent", 5),
        (MessageQueued(**FACTS), "ann/1#queued", 5),
        (MessageDelivered(**FACTS, delivered_ms=TimestampMs(6)), "ann/1#delivered", 6),
        (MessageRead(**FACTS, read_ms=TimestampMs(7)), "ann/1#read", 7),
        (MessageDeleted(**FACTS, deleted_ms=TimestampMs(8)), "ann/1#deleted", 8),
    ],
)
def test_stage_of_a_message_has_one_id_and_its_own_time(
    body: MessageStage, event_id: str, time_ms: int
) -> None:
    envelope = stage_envelope(body)
    assert (envelope.id, envelope.time_ms) == (event_id, time_ms)
    assert CHAT.decode(encode(envelope)) == envelope
    assert b"text" not in encode(envelope)


def test_topics_of_the_homes_have_the_same_number_of_partitions() -> None:
    topics = (CHAT_HANDOVER, CHAT_JOURNAL, CHAT_SNAPSHOT, COMMANDS)
    assert len({topic.partitions for topic in topics}) == 1
