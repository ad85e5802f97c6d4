"""Splits the bytes of a stream into frames: lines (X) and server-sent events (Mastodon). Pure, bounded.

A frame above the size limit is skipped and reported as OVERSIZED; the following frames are unaffected.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

MESSAGE = "message"
KEEPALIVE = "keepalive"
OVERSIZED = "oversized"


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """One message of a network's protocol. For OVERSIZED, `data` is its beginning."""

    event: str
    data: bytes
    size_bytes: int
    is_settled: bool = True
    """False while a gap is being filled. Such frames must not count as read up to now, or a connection
    lost in the middle would leave the rest of the gap unfilled."""


def frame(event: str, data: bytes) -> StreamFrame:
    return StreamFrame(event, data, len(data))


class LineSplitter:
    """Splits at newlines; an empty line is a keep-alive."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._rest = bytearray()
        self._skipped_bytes = 0
        """Dropped bytes of a line that is too long; its beginning stays in `_rest`."""

    def feed(self, data: bytes) -> Iterator[StreamFrame]:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            self._append(data[start:end])
            yield self._finish()
            start = end + 1
        self._append(data[start:])

    def _append(self, part: bytes) -> None:
        room = self._size_bytes_max + 1 - len(self._rest)
        self._rest += part[:room]
        self._skipped_bytes += max(0, len(part) - room)

    def _finish(self) -> StreamFrame:
        line, skipped = bytes(self._rest), self._skipped_bytes
        self._rest.clear()
        self._skipped_bytes = 0
        text = line.rstrip(b"\r")
        if skipped or len(text) > self._size_bytes_max:
            return StreamFrame(OVERSIZED, text, len(line) + skipped)
        return frame(MESSAGE if text.strip() else KEEPALIVE, text)


class EventSplitter:
    """Splits server-sent events (WHATWG HTML 9.2); supports what Mastodon uses: event, data, comments."""

    def __init__(self, size_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._lines = LineSplitter(size_bytes_max)
        self._event = ""
        self._data: list[bytes] = []
        self._size_bytes = 0
        self._oversized = False

    def feed(self, data: bytes) -> Iterator[StreamFrame]:
        for line in self._lines.feed(data):
            if line.event == KEEPALIVE:
                yield from self._dispatch()
            elif line.data.startswith(b":"):
                yield frame(KEEPALIVE, b"")
            else:
                self._field(line)

    def _field(self, line: StreamFrame) -> None:
        name, _, value = line.data.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            self._event = value.decode("utf-8", "replace")
        elif name == b"data":
            self._size_bytes += line.size_bytes
            if self._size_bytes > self._size_bytes_max or line.event == OVERSIZED:
                self._oversized = True
                self._data = self._data[:1] or [value]
            else:
                self._data.append(value)

    def _dispatch(self) -> Iterator[StreamFrame]:
        event, data, size, oversized = self._event, self._data, self._size_bytes, self._oversized
        self._event, self._data, self._size_bytes, self._oversized = "", [], 0, False
        if oversized:
            yield StreamFrame(OVERSIZED, data[0], size)
        elif data:
            yield frame(event or MESSAGE, b"\n".join(data))
