"""The sending half of a link: everything added in one turn is written at once, at its end.

The end of a turn is a callback of `call_soon`, as in `replica_set`.

However slowly the other side reads, at most one ping and one pong are queued. Neither overtakes
anything, because leases depend on both (docs/RAFT.md): a peer that answers a ping has read every
heartbeat sent before it, and the reader of the pong has read all of the peer's answers to those
heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.rules.outbox import LinkOutbox, Pulse
from kafkaesque.broker.replication.rules.peer_codec import (
    Blob,
    PeerAnswer,
    PeerCall,
    PeerPost,
    encode_ping,
    encode_pong,
)
from kafkaesque.model.ids import GroupId
from kafkaesque.model.limits import KIB

WRITE_BUFFER_BYTES = 512 * KIB
"""When the transport holds more than this, the rest waits in the outbox, where its size is
bounded."""


class SentCounters:
    """Counts what a link has sent."""

    __slots__ = ("dropped_messages", "frames", "messages", "pulses", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.messages = 0
        self.frames = 0
        """Without pings and pongs; those are `pulses`."""
        self.pulses = 0
        self.dropped_messages = 0


class LinkWriter:
    """Queues and writes the messages of one link.

    `stamp` returns the stamp of a ping when the ping is created. `dropped` is called at the end of
    a turn in which Raft messages did not fit into the queue.
    """

    __slots__ = (
        "_dropped",
        "_is_flush_due",
        "_is_paused",
        "_loop",
        "_outbox",
        "_owed_pong",
        "_stamp",
        "_transport",
        "_waiting",
        "_was_dropping",
        "is_cut",
        "sent",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        queued_bytes_max: int,
        stamp: Callable[[], int],
        dropped: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._outbox = LinkOutbox(queued_bytes_max)
        self._stamp = stamp
        self._dropped = dropped
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_flush_due = False
        self._waiting: set[Pulse] = set()
        """Pulses in the outbox."""
        self._owed_pong: int | None = None
        """The newest ping that arrived while the pong for an earlier one is queued."""
        self._was_dropping = False
        self.is_cut = False
        """Discards everything instead of sending it, as if the network had lost it. For tests."""
        self.sent = SentCounters()

    @property
    def queued_bytes(self) -> int:
        in_transport = self._transport.get_write_buffer_size() if self._transport else 0
        return self._outbox.size_bytes + in_transport

    def open(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        self._flush_soon()

    def close(self) -> None:
        """Stops sending."""
        self._transport = None

    def add_message(self, group: GroupId, message: Message, blobs: Sequence[Blob | None]) -> None:
        if self._outbox.add_message(group, message, blobs):
            self.sent.messages += 1
        else:
            self.sent.dropped_messages += 1
            self._was_dropping = True
        self._flush_soon()

    def add(self, part: PeerCall | PeerAnswer | PeerPost) -> bool:
        """Returns False if the queue is full."""
        self._flush_soon()
        return self._outbox.add(part)

    def ping(self) -> None:
        if Pulse.PING not in self._waiting:
            self._add_pulse(Pulse.PING, encode_ping(self._stamp()))

    def pong(self, stamp: int) -> None:
        """Answers a ping. Only the newest ping needs an answer."""
        if Pulse.PONG in self._waiting:
            self._owed_pong = stamp
        else:
            self._add_pulse(Pulse.PONG, encode_pong(stamp))

    def _add_pulse(self, pulse: Pulse, frame: bytes) -> None:
        self._waiting.add(pulse)
        self._outbox.add_pulse(pulse, frame)
        self._flush_soon()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        self.flush()

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._loop.call_soon(self._end_of_turn)

    def _end_of_turn(self) -> None:
        self._is_flush_due = False
        self.flush()
        if self._was_dropping:
            self._was_dropping = False
            self._dropped()

    def flush(self) -> None:
        """Writes as much as the transport accepts. (It calls `pause` from within its write.)"""
        while self._can_write and not self._is_paused and self._write_frame():
            pass

    def flush_all(self) -> None:
        """Writes everything, however slowly it is read: nothing follows."""
        while self._can_write and self._write_frame():
            pass

    def _write_frame(self) -> bool:
        """Returns False if nothing is queued."""
        frame = self._outbox.take_frame()
        if frame is None:
            return False
        if frame.pulse is None:
            self.sent.frames += 1
        else:
            self.sent.pulses += 1
            self._pulse_sent(frame.pulse)
        self._write(frame.buffers)
        return True

    def _pulse_sent(self, pulse: Pulse) -> None:
        self._waiting.discard(pulse)
        if pulse is Pulse.PONG and self._owed_pong is not None:
            stamp, self._owed_pong = self._owed_pong, None
            self._add_pulse(pulse, encode_pong(stamp))

    @property
    def _can_write(self) -> bool:
        """False also between the loss of the connection and the callback that reports it."""
        return self._transport is not None and not self._transport.is_closing()

    def _write(self, buffers: list[Blob]) -> None:
        if self._transport is not None and not self.is_cut:
            self.sent.size_bytes += sum(map(len, buffers))
            self._transport.writelines(buffers)
