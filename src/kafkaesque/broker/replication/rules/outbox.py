"""What waits to be sent on one link, as frames, within a bound. No I/O.

Everything added within one turn of the event loop shares a frame, up to `FRAME_BYTES_SOFT`: the
receiver reads a frame whole before it acts on it. Frames leave in the order in which they were begun.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from kafkaesque.broker.raft.messages import InstallSnapshot, Message
from kafkaesque.broker.replication.rules.peer_codec import (
    FRAME_BYTES_MAX,
    Answer,
    Blob,
    Call,
    FrameWriter,
    Post,
)
from kafkaesque.model.ids import GroupId
from kafkaesque.model.limits import MIB

FRAME_BYTES_SOFT = MIB
FRAME_ELEMENTS_SOFT = 10_000
OVERHEAD_BYTES_PER_ENTRY = 64
"""At least what describes an entry, or a message without its entries' bytes."""


class Pulse(Enum):
    PING = "ping"
    PONG = "pong"


class Frame(NamedTuple):
    buffers: list[Blob]
    size_bytes: int
    pulse: Pulse | None = None
    """What it is, if it is not messages."""


class Outbox:
    __slots__ = ("_bytes_max", "_closed_bytes", "_frames", "_open")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._frames: deque[Frame] = deque()
        self._closed_bytes = 0
        """Of `_frames`, pulses aside."""
        self._open = FrameWriter()

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self._open.size_bytes

    def __bool__(self) -> bool:
        return bool(self._frames or self._open)

    def add_message(self, group: GroupId, message: Message, blobs: Sequence[Blob | None]) -> bool:
        """False if there is no room, or could never be."""
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

    def add(self, part: Call | Answer | Post) -> bool:
        """False if there is no room, or could never be."""
        if not self._has_room(len(part.body) + OVERHEAD_BYTES_PER_ENTRY):
            return False
        if isinstance(part, Call):
            self._open.add_call(part)
        elif isinstance(part, Answer):
            self._open.add_answer(part)
        else:
            self._open.add_post(part)
        return True

    def add_pulse(self, pulse: Pulse, frame: bytes) -> None:
        """Behind all that was added before. It is small, and there is always room for it."""
        if self._open:
            self._close_frame()
        self._frames.append(Frame([frame], len(frame), pulse))

    def _has_room(self, size_bytes: int) -> bool:
        """Begins another frame if this one is large enough. What waits alone always has room, or
        a batch above the bound could never be replicated."""
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
        self._frames.append(Frame(buffers, size_bytes))
        self._closed_bytes += size_bytes

    def take_frame(self) -> Frame | None:
        """The next one; None if nothing waits."""
        if not self._frames:
            if not self._open:
                return None
            self._close_frame()
        frame = self._frames.popleft()
        if frame.pulse is None:
            self._closed_bytes -= frame.size_bytes
        return frame
