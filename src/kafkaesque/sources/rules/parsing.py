"""Shared by the parsers of the three networks: result, exceptions, times and limits. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from kafkaesque.events.social import LANGUAGES_MAX, TEXT_LENGTH_MAX, PostEvent
from kafkaesque.model.ids import TimestampMs
from kafkaesque.sources.rules.frames import StreamFrame

T = TypeVar("T")

ID_LENGTH_MAX = 1024


class FrameError(Exception):
    """A frame that violates the network's protocol. It is skipped."""


class StreamEnded(Exception):
    """The network announced the end of the stream."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """The content of a frame: events, and the cursor to store once they are in the log."""

    events: tuple[PostEvent, ...] = ()
    cursor: int | None = None


Parser = Callable[[StreamFrame, TimestampMs], Parsed]
"""Parses a frame, given the time it was read. Raises FrameError or StreamEnded, and nothing else."""


def decode(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Raises FrameError if `data` is invalid."""
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(str(error)) from None


def time_ms(text: str | None, default: TimestampMs) -> TimestampMs:
    """An author's ISO 8601 time; `default` if it is invalid."""
    try:
        moment = datetime.fromisoformat(text or "")
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return TimestampMs(int(aware.timestamp() * 1000))
    except (ValueError, OverflowError):
        return default


def number(text: str, what: str) -> int:
    """Parses an id that must be a plain decimal number below 2**63."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise FrameError(f"{what} {text[:40]!r} is not a number")
    return int(text)


def bounded(text: str) -> str:
    return text[:TEXT_LENGTH_MAX]


def languages(tags: list[str] | None) -> tuple[str, ...]:
    """The tags that have the length of a language tag."""
    return tuple(tag for tag in tags or () if 0 < len(tag) <= 35)[:LANGUAGES_MAX]


def identity(text: str, what: str) -> str:
    if not 0 < len(text) <= ID_LENGTH_MAX:
        raise FrameError(f"{what} has {len(text)} characters; allowed are 1 to {ID_LENGTH_MAX}")
    return text
