"""Cuts a stream of bytes into length-prefixed frames, for asyncio.BufferedProtocol. Sans-IO.

Small frames share a scratch buffer, which is used from front to back once and then left to whoever
still holds a frame of it; nothing is written over that anybody looks at. A frame that does not fit
in the rest of the scratch is received into a buffer of its own, and so is, from its first byte on,
one that follows such a frame. What a connection may make us allocate follows what it has really
sent: the length that a peer claims is not believed beyond `TRUSTED_BYTES_MIN` or the largest frame
that it has completed before.

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
"""Takes five pipelined requests of 16 kB, which is what a Java producer sends, in one read."""
TRUSTED_BYTES_MIN = 16 * KIB
TRUSTED_BYTES_MAX = 4 * MIB

POOLED_BUFFERS_MAX = 16
POOLED_BYTES_MIN = 16 * KIB
POOLED_BYTES_MAX = 2 * MIB
"""The pool holds at most POOLED_BUFFERS_MAX times this."""
_ROOMY = 4
"""A buffer serves wishes down to this part of its size, so that a few bytes never pin many."""

LENGTH_BYTES = 4
_unpack_length = struct.Struct(">i").unpack_from


class BufferPool:
    """Buffers that nothing more will be received into, for whoever wants to receive next.

    A new buffer is zeroed and its pages are faulted in; a used one is neither, and lies in the
    cache. All connections of a listener share a pool, so that an idle one keeps nothing.
    """

    __slots__ = ("_buffers",)

    def __init__(self) -> None:
        self._buffers: list[bytearray] = []

    def take(self, size_bytes: int) -> memoryview:
        """`size_bytes` to receive into, used or new."""
        for number, buffer in enumerate(self._buffers):
            if size_bytes <= len(buffer) <= size_bytes * _ROOMY and _is_free(buffer):
                del self._buffers[number]
                return memoryview(buffer)[:size_bytes]
        return memoryview(bytearray(size_bytes))

    def give(self, view: memoryview) -> None:
        """Take back a buffer. The event loop and the holders of its frames may look at it still:
        that is seen when it is taken."""
        buffer = view.obj
        if isinstance(buffer, bytearray) and POOLED_BYTES_MIN <= len(buffer) <= POOLED_BYTES_MAX:
            if len(self._buffers) == POOLED_BUFFERS_MAX:
                del self._buffers[0]
            self._buffers.append(buffer)


def _is_free(buffer: bytearray) -> bool:
    """A bytearray that somebody looks at cannot change its size."""
    try:
        buffer.append(buffer.pop())
    except BufferError:
        return False
    return True


def cut_frames(
    view: memoryview, start: int, filled: int, smallest: int, largest: int
) -> tuple[list[memoryview], int, int | None]:
    """The frames that stand whole in [start, filled), and where they end.

    Last the length of the frame that begins there, which is not whole or not between `smallest` and
    `largest`; None if it has not come in.
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


cut_frames = native.frame_cutter(cut_frames)


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
        # Size of the last frame with its prefix if that was a large one: the next is likely to be.
        self._expected_bytes = 0

    @property
    def held_bytes(self) -> int:
        """Size of the buffer that an incomplete frame is received into; 0 between frames."""
        if self._view is None or not (self._own_frame_bytes or self._filled > self._start):
            return 0
        buffer = self._view.obj
        return len(buffer) if isinstance(buffer, bytearray) else 0

    def get_buffer(self, size_hint: int = -1) -> memoryview:
        """Where to receive next; never empty. (`size_hint` is asyncio's and says nothing.)"""
        view = self._view
        if view is None:
            view = self._view = self._pool.take(max(self._scratch_bytes, self._expected_bytes))
        elif self._filled == len(view):
            view = self._grow_own(view)
        return view[self._filled :] if self._filled else view

    def buffer_updated(self, received_bytes: int) -> list[memoryview]:
        """Account for bytes received into the last buffer; returns the frames now complete."""
        view = self._view
        if view is None:
            raise ValueError("buffer_updated without get_buffer")
        filled = self._filled = self._filled + received_bytes
        if self._own_frame_bytes:
            return self._finish_own(view)
        view_bytes = len(view)
        if filled == view_bytes and received_bytes * 2 >= view_bytes:
            # More is waiting than we offered to take.
            self._scratch_bytes = min(self._scratch_bytes * 4, SCRATCH_BYTES_MAX)
        smallest, largest = self._frame_bytes_min, self.limit_bytes
        frames, start, next_bytes = cut_frames(view, self._start, filled, smallest, largest)
        if next_bytes is not None and not smallest <= next_bytes <= largest:
            raise self._refusal(next_bytes)
        self._start = start
        if start == filled:
            if view_bytes > SCRATCH_BYTES_MIN or filled * 4 > view_bytes * 3:
                self._rest(view)
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
        """A frame is incomplete: decide where the rest of it shall go.

        `frame_bytes` is its length, 0 if that is not yet known.
        """
        body = self._start + LENGTH_BYTES
        if frame_bytes:
            if body + frame_bytes > len(view):
                self._own_frame_bytes = frame_bytes
                self._replace(view, body, self._believed(self._filled - self._start))
        elif body > len(view):
            self._replace(view, self._start, self._scratch_bytes)

    def _rest(self, view: memoryview) -> None:
        """Everything was handed out. Give back a buffer that is large, or has little room left."""
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
        """Continue in another buffer that begins with what was received from `start` on."""
        head_bytes = self._filled - start
        fresh = self._pool.take(size_bytes)
        fresh[:head_bytes] = view[start : self._filled]
        self._pool.give(view)
        self._view = fresh
        self._start = 0
        self._filled = head_bytes

    def _believed(self, received_bytes: int) -> int:
        """How much of the frame's claimed length to allocate, given what has arrived of it."""
        return min(self._own_frame_bytes, max(self._trusted_bytes, received_bytes * 4))

    def _grow_own(self, view: memoryview) -> memoryview:
        self._replace(view, 0, self._believed(self._filled))
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
