"""What the parsers of the three networks share: their result, their one exception, times. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from kafkaesque.events.social import LANGUAGES_MAX, TEXT_LENGTH_MAX, PostEvent
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.frames import Frame

T = TypeVar("T")

ID_LENGTH_MAX = 1024


class FrameError(Exception):
    """A frame that is not what the network's protocol promises. The stream goes on without it."""


class StreamEnded(Exception):
    """The network says within the stream that it ends it."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a frame says: events, and how far the stream is read once they are in the log."""

    events: tuple[PostEvent, ...] = ()
    cursor: int | None = None


Parser = Callable[[Frame, TimestampMs], Parsed]
"""Frame and the time it was read to its meaning; FrameError or StreamEnded, and nothing else."""


def decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """FrameError for whatever is wrong with `data`."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(str(error)) from None


def time_ms(text: str | None, otherwise: TimestampMs) -> TimestampMs:
    """An author's ISO 8601 time. What cannot be read as one was made up: `otherwise` then."""
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return TimestampMs(int(aware.timestamp() * 1000))
    except (ValueError, OverflowError):
        return otherwise


def number(text: str, what: str) -> int:
    """An id that has to be a plain decimal number below 2**63."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise FrameError(f"{what} {text[:40]!r} is not a number")
    return int(text)


def bounded(text: str) -> str:
    return text[:TEXT_LENGTH_MAX]


def languages(tags: list[str] | None) -> tuple[str, ...]:
    """Those that can be language tags."""
    return tuple(tag for tag in tags or () if 0 < len(tag) <= 35)[:LANGUAGES_MAX]


def identity(text: str, what: str) -> str:
    if not 0 < len(text) <= ID_LENGTH_MAX:
        raise FrameError(f"{what} of {len(text)} characters")
    return text
