"""Splits a byte stream into length-prefixed frames, for asyncio.BufferedProtocol. Sans-IO.

Small frames share a scratch buffer. It is filled once from front to back and then left to the holders
of its frames, so bytes that a frame refers to are never overwritten. A frame that does not fit in the
rest of the scratch buffer gets its own buffer; after a large frame, the next one is received into a
large buffer from its first byte on. Allocation follows what a connection has really sent: a claimed
length is not trusted beyond `TRUSTED_BYTES_MIN` or the largest frame that the peer has completed
before.

An idle connection between frames holds at most `SCRATCH_BYTES_MIN`.
"""

from __future__ import annotations

import struct

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import KIB, MIB
from kafkaesque.wire import native
from kafkaesque.wire.api import REQUEST_HEADER_BYTES_MIN

SCRATCH_BYTES_MIN = 2 * KIB
SCRATCH_BYTES_MAX = 256 * KIB
"""Large enough to receive five pipelined requests of 16 kB, as a Java producer sends, in one read."""
TRUSTED_BYTES_MIN = 16 * KIB
TRUSTED_BYTES_MAX = 4 * MIB

POOLED_BUFFERS_MAX = 16
POOLED_BYTES_MIN = 16 * KIB
POOLED_BYTES_MAX = 2 * MIB
"""The pool holds at most POOLED_BUFFERS_MAX times this."""
_SIZE_RATIO_MAX = 4
"""A pooled buffer is at most this many times larger than requested, so that small frames do not pin
large buffers."""

LENGTH_BYTES = 4
_unpack_length = struct.Struct(">i").unpack_from


class BufferPool:
    """Reuses receive buffers.

    A new buffer is zeroed and its pages are faulted in; a used one needs neither and is in the CPU
    cache. All connections of a listener share a pool, so that an idle connection keeps nothing.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """Returns a buffer of `size_bytes`, reused or new."""
        for number, buffer in enumerate(self._buffers):
            if size_bytes <= len(buffer) <= size_bytes * _SIZE_RATIO_MAX and _is_free(buffer):
                del self._buffers[number]
                return memoryview(buffer)[:size_bytes]
        return memoryview(bytearray(size_bytes))

    def give(self, view: memoryview) -> None:
        """Returns a buffer to the pool. The event loop and holders of its frames may still use it;
        `take` checks that."""
        buffer = view.obj
        if isinstance(buffer, bytearray) and POOLED_BYTES_MIN <= len(buffer) <= POOLED_BYTES_MAX:
            if len(self._buffers) == POOLED_BUFFERS_MAX:
                del self._buffers[0]
            self._buffers.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """Whether nothing refers to the buffer: a bytearray with exports cannot be resized."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


@native.frame_cutter
def cut_frames(
    view: memoryview, start: int, filled: int, smallest: int, largest: int
) -> tuple[list[memoryview], int, int | None]:
    """Returns the complete frames in [start, filled), where they end, and the next frame's length.

    The next frame is incomplete, or its length is not between `smallest` and `largest`. Its length is
    None if it has not been received.
    """
    frames: list[memoryview] = []
    while start + LENGTH_BYTES <= filled:
        (length,) = _unpack_length(view, start)
        body = start + LENGTH_BYTES
        if not smallest <= length <= largest or body + length > filled:
            return frames, start, length
        start = body + length
        frames.append(view[body:start])
    return frames, start, None


class FrameReader:
    """`get_buffer` returns where to receive next; `buffer_updated` returns the completed frames.

    Must not be used after it has raised: the stream is invalid and the connection must be closed.
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
        """Largest accepted frame, without its length prefix. May be changed at any time; applies to
        frames whose length has not been read yet."""
        self._frame_bytes_min = frame_bytes_min
        self._scratch_bytes = SCRATCH_BYTES_MIN
        self._trusted_bytes = TRUSTED_BYTES_MIN
        # 0 <= start <= filled <= len(view): [start, filled) has not been returned yet.
        self._view: memoryview | None = None
        self._start = 0
        self._filled = 0
        # Length of the frame that fills `view` on its own, or 0 when `view` is scratch.
        self._own_frame_bytes = 0
        # Size of the last frame with its prefix if it was large: the next one is likely to be too.
        self._expected_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Size of the buffer of an incomplete frame; 0 between frames."""
        if self._view is None or not (self._own_frame_bytes or self._filled > self._start):
            return 0
        buffer = self._view.obj
        return len(buffer) if isinstance(buffer, bytearray) else 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Returns where to receive next; never empty. Ignores asyncio's `size_hint`."""
        view = self._view
        if view is None:
            view = self._view = self._pool.take(max(self._scratch_bytes, self._expected_bytes))
        elif self._filled == len(view):
            view = self._grow_own(view)
        return view[self._filled :] if self._filled else view

    def buffer_updated(self, received_bytes: int) -> list[memoryview]:
        """Accounts for bytes received into the last buffer and returns the completed frames."""
        view = self._view
        if view is None:
            raise ValueError("buffer_updated without get_buffer")
        filled = self._filled = self._filled + received_bytes
        if self._own_frame_bytes:
            return self._finish_own(view)
        view_bytes = len(view)
        if filled == view_bytes and received_bytes * 2 >= view_bytes:
            # The peer has sent more than the buffer could take: offer a larger one next time.
            self._scratch_bytes = min(self._scratch_bytes * 4, SCRATCH_BYTES_MAX)
        smallest, largest = self._frame_bytes_min, self.limit_bytes
        frames, start, next_bytes = cut_frames(view, self._start, filled, smallest, largest)
        if next_bytes is not None and not smallest <= next_bytes <= largest:
            raise self._refusal(next_bytes)
        self._start = start
        if start == filled:
            if view_bytes > SCRATCH_BYTES_MIN or filled * 4 > view_bytes * 3:
                self._recycle(view)
        else:
            self._make_room(view, next_bytes or 0)
        return frames

    def _refusal(self, frame_bytes: int) -> ProtocolError:
        if frame_bytes < 0:
            return ProtocolError(f"frame of negative length {frame_bytes}")
        if frame_bytes < self._frame_bytes_min:
            return ProtocolError(f"frame of {frame_bytes} bytes is too short for its header")
        return ProtocolError(
            f"frame of {frame_bytes} bytes exceeds the limit of {self.limit_bytes}"
        )

    def _make_room(self, view: memoryview, frame_bytes: int) -> None:
        """Decides where to receive the rest of an incomplete frame.

        `frame_bytes` is its length, or 0 if that is not known yet.
        """
        body = self._start + LENGTH_BYTES
        if frame_bytes:
            if body + frame_bytes > len(view):
                self._own_frame_bytes = frame_bytes
                self._replace(view, body, self._trusted_size(self._filled - self._start))
        elif body > len(view):
            self._replace(view, self._start, self._scratch_bytes)

    def _recycle(self, view: memoryview) -> None:
        """Returns the buffer to the pool when all frames were returned and it is large or nearly full."""
        filled = self._filled
        if filled * 4 < len(view) and self._scratch_bytes > SCRATCH_BYTES_MIN:
            self._scratch_bytes //= 2
        if filled <= SCRATCH_BYTES_MAX:
            self._expected_bytes = 0
        self._drop(view)

    def _drop(self, view: memoryview) -> None:
        self._view = None
        self._start = self._filled = self._own_frame_bytes = 0
        self._pool.give(view)

    def _replace(self, view: memoryview, start: int, size_bytes: int) -> None:
        """Moves the bytes received from `start` on to a new buffer and continues there."""
        head_bytes = self._filled - start
        fresh = self._pool.take(size_bytes)
        fresh[:head_bytes] = view[start : self._filled]
        self._pool.give(view)
        self._view = fresh
        self._start = 0
        self._filled = head_bytes

    def _trusted_size(self, received_bytes: int) -> int:
        """How much of the frame's claimed length to allocate, given what has been received."""
        return min(self._own_frame_bytes, max(self._trusted_bytes, received_bytes * 4))

    def _grow_own(self, view: memoryview) -> memoryview:
        self._replace(view, 0, self._trusted_size(self._filled))
        if self._view is None:
            raise ValueError("no buffer to grow")
        return self._view

    def _finish_own(self, view: memoryview) -> list[memoryview]:
        size_bytes = self._own_frame_bytes
        if self._filled < size_bytes:
            return []
        self._trusted_bytes = min(max(self._trusted_bytes, size_bytes), TRUSTED_BYTES_MAX)
        if SCRATCH_BYTES_MAX < size_bytes <= TRUSTED_BYTES_MAX:
            self._expected_bytes = size_bytes + LENGTH_BYTES
        frame = view[:size_bytes]
        self._drop(view)
        return [frame]
