"""Delivery of a message: turns an envelope into the message that its receiver handles."""

from __future__ import annotations

from dataclasses import replace

from kafkaesque.broker.raft.messages import Append, Message
from kafkaesque.broker.replication.entry_log import BatchPayload
from kafkaesque.broker.replication.rules.peer_codec import FrameWriter, GroupMessage, decode_frame
from kafkaesque.lab.sim.network import PeerEnvelope
from kafkaesque.model.errors import check
from kafkaesque.records.batch import read_header

_LENGTH_BYTES = 4


def received(envelope: PeerEnvelope) -> Message:
    """The message with its batches, without encoding it."""
    message = envelope.message
    if not isinstance(message, Append) or not message.entries:
        return message
    entries = tuple(
        entry if blob is None else replace(entry, payload=_read_batch(memoryview(blob)))
        for entry, blob in zip(message.entries, envelope.blobs, strict=True)
    )
    return message._replace(entries=entries)


def received_by_codec(envelope: PeerEnvelope) -> Message:
    """The same, encoded and decoded as on a real link."""
    writer = FrameWriter()
    writer.add(envelope.group, envelope.message, envelope.blobs)
    frame = b"".join(writer.take())
    (part,) = decode_frame(memoryview(frame)[_LENGTH_BYTES:], _read_batch)
    check(isinstance(part, GroupMessage), "a frame of one message holds one message")
    if not isinstance(part, GroupMessage):
        return envelope.message
    check(part.group == envelope.group, "a message comes to its group")
    return part.message


def brief(message: Message) -> str:
    """A summary for the trace: everything except the contents of entries."""
    if isinstance(message, Append):
        terms = [entry.term for entry in message.entries]
        return f"Append{tuple(message[:6])} {terms}"
    return repr(message)


def _read_batch(batch: memoryview) -> object:
    data = bytes(batch)
    return BatchPayload(data, read_header(data))
