"""The bounded send queue of one link, as frames. No I/O.

Everything added within one turn of the event loop shares a frame, up to `FRAME_BYTES_SOFT`: the
receiver reads a whole frame before it acts on it. Frames are sent in the order in which they were
started.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kafkaesque.broker.raft.messages import InstallSnapshot, Message
from kafkaesque.broker.replication.rules.peer_codec import (
    FRAME_BYTES_MAX,
    Blob,
    FrameWriter,
    PeerAnswer,
    PeerCall,
    PeerPost,
)
from kafkaesque.model.ids import GroupId
from kafkaesque.model.limits import MIB

FRAME_BYTES_SOFT = MIB
FRAME_ELEMENTS_SOFT = 10_000
OVERHEAD_BYTES_PER_ENTRY = 64
"""A lower bound for an entry's description, or for a message without its entries' bytes."""


class Pulse(Enum):
    PING = "ping"
    PONG = "pong"


class OutboxFrame(NamedTuple):
    buffers: list[Blob]
    size_bytes: int
    pulse: Pulse | None = None
    """None for a frame of messages."""


class LinkOutbox:
    __slots__ = ("_bytes_max", "_closed_bytes", "_frames", "_open")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._frames: deque[OutboxFrame] = deque()
        self._closed_bytes = 0
        """The size of `_frames`, without pulses."""
        self._open = FrameWriter()

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self._open.size_bytes

    def __bool__(self) -> bool:
        return bool(self._frames or self._open)

    def add_message(self, group: GroupId, message: Message, blobs: Sequence[Blob | None]) -> bool:
        """Returns False if the queue is full or the message is too large for a frame."""
        size_bytes = OVERHEAD_BYTES_PER_ENTRY * (1 + len(blobs))
        for blob in blobs:
            if blob is not None:
                size_bytes += len(blob)
        if isinstance(message, InstallSnapshot):
            state = message.snapshot.state
            size_bytes += len(state) if isinstance(state, bytes) else 0
        if not self._has_room(size_bytes):
            return False
        self._open.add(group, message, blobs)
        return True

    def add(self, part: PeerCall | PeerAnswer | PeerPost) -> bool:
        """Returns False if the queue is full or the body is too large for a frame."""
        if not self._has_room(len(part.body) + OVERHEAD_BYTES_PER_ENTRY):
            return False
        if isinstance(part, PeerCall):
            self._open.add_call(part)
        elif isinstance(part, PeerAnswer):
            self._open.add_answer(part)
        else:
            self._open.add_post(part)
        return True

    def add_pulse(self, pulse: Pulse, frame: bytes) -> None:
        """Queues a pulse after everything added before. Pulses are small and always accepted."""
        if self._open:
            self._close_frame()
        self._frames.append(OutboxFrame([frame], len(frame), pulse))

    def _has_room(self, size_bytes: int) -> bool:
        """Returns whether the queue accepts this size, and starts another frame if the current one
        is large enough. An empty queue accepts anything up to a frame: otherwise a batch above the
        limit could never be replicated."""
        writer = self._open
        is_alone = not writer and self._closed_bytes == 0
        if size_bytes > FRAME_BYTES_MAX or (
            not is_alone and self.size_bytes + size_bytes > self._bytes_max
        ):
            return False
        if writer and (
            writer.size_bytes + size_bytes > FRAME_BYTES_SOFT
            or writer.element_count >= FRAME_ELEMENTS_SOFT
        ):
            self._close_frame()
        return True

    def _close_frame(self) -> None:
        buffers = self._open.take()
        size_bytes = sum(map(len, buffers))
        self._frames.append(OutboxFrame(buffers, size_bytes))
        self._closed_bytes += size_bytes

    def take_frame(self) -> OutboxFrame | None:
        """Returns the next frame; None if the queue is empty."""
        if not self._frames:
            if not self._open:
                return None
            self._close_frame()
        frame = self._frames.popleft()
        if frame.pulse is None:
            self._closed_bytes -= frame.size_bytes
        return frame
