"""The sending half of a link: whatever was said in a turn of the event loop leaves in one write.

However long the other side does not read, at most one ping and one answer to a ping wait. Neither
overtakes anything, for leases rest on both (docs/RAFT.md): whoever answers a ping has read every
heartbeat that was said before it, and who reads the answer has read whatever the other side had to
say to those heartbeats.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.rules.outbox import Outbox, Pulse
from kafkaesque.broker.replication.rules.peer_codec import (
    Answer,
    Blob,
    Call,
    Post,
    encode_ping,
    encode_pong,
)
from kafkaesque.model.ids import GroupId
from kafkaesque.model.limits import KIB

WRITE_BUFFER_BYTES = 512 * KIB
"""Above this many bytes in the transport the rest waits here, where its size is known."""


class Sent:
    """What a link has sent so far."""

    __slots__ = ("dropped_messages", "frames", "messages", "pulses", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        self.messages = 0
        self.frames = 0
        """Pings and their answers aside; those are `pulses`."""
        self.pulses = 0
        self.dropped_messages = 0


class LinkWriter:
    """`stamp` makes the stamp of a ping at the moment it is said; `dropped` is told, at the end of a
    turn, that Raft messages of it found no room."""

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
        self._outbox = Outbox(queued_bytes_max)
        self._stamp = stamp
        self._dropped = dropped
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._is_flush_due = False
        self._waiting: set[Pulse] = set()
        """In the outbox."""
        self._owed_pong: int | None = None
        """The newest ping that came while the answer to an earlier one waits."""
        self._was_dropping = False
        self.is_cut = False
        """Nothing leaves, as if the network had lost it. For tests."""
        self.sent = Sent()

    @property
    def queued_bytes(self) -> int:
        in_transport = self._transport.get_write_buffer_size() if self._transport else 0
        return self._outbox.size_bytes + in_transport

    def open(self, transport: asyncio.Transport) -> None:
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        self._flush_soon()

    def close(self) -> None:
        """Nothing leaves from here on."""
        self._transport = None

    def add_message(self, group: GroupId, message: Message, blobs: Sequence[Blob | None]) -> None:
        if self._outbox.add_message(group, message, blobs):
            self.sent.messages += 1
        else:
            self.sent.dropped_messages += 1
            self._was_dropping = True
        self._flush_soon()

    def add(self, part: Call | Answer | Post) -> bool:
        """False if there is no room."""
        self._flush_soon()
        return self._outbox.add(part)

    def ping(self) -> None:
        if Pulse.PING not in self._waiting:
            self._add_pulse(Pulse.PING, encode_ping(self._stamp()))

    def pong(self, stamp: int) -> None:
        """Only the newest ping needs an answer."""
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
        """Hand to the transport what it takes. (It calls `pause` from within its write.)"""
        while self._can_write and not self._is_paused and self._write_frame():
            pass

    def flush_all(self) -> None:
        """These are the last words: hand over everything, whether or not it is taken quickly."""
        while self._can_write and self._write_frame():
            pass

    def _write_frame(self) -> bool:
        """False if nothing waits."""
        frame = self._outbox.take_frame()
        if frame is None:
            return False
        if frame.pulse is None:
            self.sent.frames += 1
        else:
            self.sent.pulses += 1
            self._has_left(frame.pulse)
        self._write(frame.buffers)
        return True

    def _has_left(self, pulse: Pulse) -> None:
        self._waiting.discard(pulse)
        if pulse is Pulse.PONG and self._owed_pong is not None:
            stamp, self._owed_pong = self._owed_pong, None
            self._add_pulse(pulse, encode_pong(stamp))

    @property
    def _can_write(self) -> bool:
        """Not from when the connection broke until the link is told, either."""
        return self._transport is not None and not self._transport.is_closing()

    def _write(self, buffers: list[Blob]) -> None:
        if self._transport is not None and not self.is_cut:
            self.sent.size_bytes += sum(map(len, buffers))
            self._transport.writelines(buffers)
