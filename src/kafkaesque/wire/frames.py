"""Cuts a stream of bytes into length-prefixed frames, for asyncio.BufferedProtocol. Sans-IO.

Small frames share a scratch buffer, which is used from front to back once and then left to whoever
still holds a frame of it; nothing is ever written over. A frame that does not fit in the rest of
the scratch is received into a buffer of its own, of exactly its size. What a connection may make
us allocate follows what it has really sent: the length that a peer claims is not believed
beyond `TRUSTED_BYTES_MIN` or the largest frame that it has completed before.

An idle connection between frames holds at most `SCRATCH_BYTES_MIN`.
"""

from __future__ import annotations

import struct

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import KIB, MIB
from kafkaesque.wire.api import REQUEST_HEADER_BYTES_MIN

SCRATCH_BYTES_MIN = 2 * KIB
SCRATCH_BYTES_MAX = 64 * KIB
TRUSTED_BYTES_MIN = 16 * KIB
TRUSTED_BYTES_MAX = 4 * MIB

POOLED_BUFFERS_MAX = 16
POOLED_BYTES_MAX = 2 * MIB
"""A larger buffer is not kept: the pool holds at most POOLED_BUFFERS_MAX times this."""

LENGTH_BYTES = 4
_unpack_length = struct.Struct(">i").unpack_from


class BufferPool:
    """Buffers of large frames that were dealt with, for the next ones.

    A new buffer is zeroed and its pages are faulted in; a used one is neither. All connections of a
    listener share a pool, so that an idle one keeps nothing.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """`size_bytes` to receive into, used or new."""
        for number, buffer in enumerate(self._buffers):
            if size_bytes <= len(buffer) and _is_free(buffer):
                del self._buffers[number]
                return memoryview(buffer)[:size_bytes]
        return memoryview(bytearray(size_bytes))

    def give(self, frame: memoryview) -> None:
        """Take back the buffer of a frame. Others may look at it still: that is seen when it is
        taken, because the event loop itself lets go of it only after the callback that gave it."""
        buffer = frame.obj
        frame.release()
        if (
            isinstance(buffer, bytearray)
            and len(self._buffers) < POOLED_BUFFERS_MAX
            and len(buffer) <= POOLED_BYTES_MAX
        ):
            self._buffers.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """A bytearray that somebody looks at cannot change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


class FrameReader:
    """`get_buffer` says where the next bytes go; `buffer_updated` returns the frames they end.

    Not defined after it has raised: the stream cannot be trusted and the connection must close.
    """

    def __init__(
        self,
        limit_bytes: int,
        pool: BufferPool | None = None,
        *,
        frame_bytes_min: int = REQUEST_HEADER_BYTES_MIN,
    ) -> None:
        self._pool = pool or BufferPool()
        self.limit_bytes = limit_bytes
        """Largest frame accepted, the length prefix not counted. May be changed at any time and
        holds for frames whose length has not been seen yet."""
        self._frame_bytes_min = frame_bytes_min
        self._scratch_bytes = SCRATCH_BYTES_MIN
        self._trusted_bytes = TRUSTED_BYTES_MIN
        # 0 <= start <= filled <= len(view): [start, filled) has not been handed out yet.
        self._view: memoryview | None = None
        self._start = 0
        self._filled = 0
        # Length of the frame that fills `view` on its own, or 0 when `view` is scratch.
        self._own_frame_bytes = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes received of frames that are not complete."""
        return self._filled - self._start

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to receive next; never empty. (`size_hint` is asyncio's and says nothing.)"""
        if self._view is None:
            self._view = memoryview(bytearray(self._scratch_bytes))
        elif self._filled == len(self._view):
            self._grow_own()
        return self._view[self._filled :]

    def buffer_updated(self, received_bytes: int) -> list[memoryview]:
        """Account for bytes received into the last buffer; returns the frames now complete."""
        view = self._view
        if view is None:
            raise ValueError("buffer_updated without get_buffer")
        offered_bytes = len(view) - self._filled
        self._filled += received_bytes
        if self._own_frame_bytes:
            return self._finish_own(view)
        if received_bytes == offered_bytes and offered_bytes * 2 >= len(view):
            # More is waiting than we offered to take.
            self._scratch_bytes = min(self._scratch_bytes * 4, SCRATCH_BYTES_MAX)
        frames = []
        start, filled = self._start, self._filled
        frame_bytes = 0
        while filled - start >= LENGTH_BYTES:
            frame_bytes = self._frame_length(view, start)
            stop = start + LENGTH_BYTES + frame_bytes
            if stop > filled:
                break
            frames.append(view[start + LENGTH_BYTES : stop])
            start = stop
            frame_bytes = 0
        self._start = start
        self._make_room(view, frame_bytes)
        return frames

    def done_with(self, frame: memoryview) -> None:
        """A frame was dealt with and will not be looked at again."""
        if len(frame) > SCRATCH_BYTES_MAX:
            self._pool.give(frame)

    def _frame_length(self, view: memoryview, position: int) -> int:
        frame_bytes: int = _unpack_length(view, position)[0]
        if self._frame_bytes_min <= frame_bytes <= self.limit_bytes:
            return frame_bytes
        if frame_bytes < 0:
            raise ProtocolError(f"frame of negative length {frame_bytes}")
        if frame_bytes < self._frame_bytes_min:
            raise ProtocolError(f"frame of {frame_bytes} bytes is too short for its header")
        raise ProtocolError(f"frame of {frame_bytes} bytes exceeds the limit of {self.limit_bytes}")

    def _make_room(self, view: memoryview, frame_bytes: int) -> None:
        """After frames were cut from the scratch: decide where the next bytes shall go.

        `frame_bytes` is the length of the incomplete frame at `start`, 0 if it is not yet known.
        """
        pending_bytes = self._filled - self._start
        if not pending_bytes:
            self._rest(view)
        elif frame_bytes:
            body = self._start + LENGTH_BYTES
            if body + frame_bytes > len(view):
                self._own_frame_bytes = frame_bytes
                self._replace(view[body : self._filled], self._believed(pending_bytes))
        elif self._start + LENGTH_BYTES > len(view):
            self._replace(view[self._start : self._filled], self._scratch_bytes)

    def _rest(self, view: memoryview) -> None:
        """Everything was handed out. Keep a small scratch with room in it, drop any other."""
        if self._filled * 4 < len(view) and self._scratch_bytes > SCRATCH_BYTES_MIN:
            self._scratch_bytes //= 2
        if len(view) > SCRATCH_BYTES_MIN or self._filled * 4 > len(view) * 3:
            self._drop()

    def _drop(self) -> None:
        self._view = None
        self._start = self._filled = self._own_frame_bytes = 0

    def _replace(self, head: memoryview, size_bytes: int) -> None:
        """Continue in a new buffer that begins with a copy of `head`."""
        view = self._pool.take(size_bytes)
        view[: len(head)] = head
        self._view = view
        self._start = 0
        self._filled = len(head)

    def _believed(self, received_bytes: int) -> int:
        """How much of the frame's claimed length to allocate, given what has arrived of it."""
        return min(self._own_frame_bytes, max(self._trusted_bytes, received_bytes * 4))

    def _grow_own(self) -> None:
        if self._view is None:
            raise ValueError("no buffer to grow")
        self._replace(self._view, self._believed(self._filled))

    def _finish_own(self, view: memoryview) -> list[memoryview]:
        if self._filled < self._own_frame_bytes:
            return []
        self._trusted_bytes = min(max(self._trusted_bytes, self._filled), TRUSTED_BYTES_MAX)
        self._drop()
        return [view]
