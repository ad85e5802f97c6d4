"""The commands of the text protocol, one per line, and their parser."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

LINE_BYTES_MAX = 1 << 20
"""Fits a message of the largest default size."""
NAME_LENGTH_MAX = 249
"""Limit for topics (Kafka's Topic.MAX_NAME_LENGTH) and groups."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]+")
_PATTERN = re.compile(r"[A-Za-z0-9._*?-]+")
_FOREIGN = frozenset(("GET", "POST", "PUT", "HEAD", "OPTIONS", "DELETE", "HOST:"))


class BadCommand(Exception):
    """A line that cannot be carried out. The text is the reason."""


class ForeignProtocol(Exception):
    """A line of HTTP: from a browser that was tricked into connecting, or to the wrong port."""


class Publish(NamedTuple):
    topic: str
    message: str


class Subscribe(NamedTuple):
    topics: str
    """A name, or a pattern with * and ?."""
    group: str
    partition_count: int | None


class Consume(NamedTuple):
    topics: str
    subscription: str
    offset: int | None
    """Replay from here; None continues at the group's offset."""
    partition: int | None = None
    """Replay this partition only."""


class Topics(NamedTuple):
    pattern: str = "*"


class Help(NamedTuple):
    pass


class Quit(NamedTuple):
    pass


Command: TypeAlias = Publish | Subscribe | Consume | Topics | Help | Quit

HELP = (
    "PUBS topic message                    write a message: text, or JSON with Header, Key, Body",
    "SUBS topic group [partitions]         join a consumer group; topic may have * and ?",
    "CONS topic subscription [offset]      read on, or again from an offset (or partition:offset)",
    "TOPICS [pattern]                      list topics",
    "HELP                                  this text",
    "QUIT                                  acknowledge what was read, and leave",
)


def parse(line: str) -> Command | None:
    """None for an empty line. Raises BadCommand, or ForeignProtocol for HTTP."""
    words = line.split(None, 1)
    if not words:
        return None
    verb, rest = words[0].upper(), words[1] if len(words) > 1 else ""
    match verb:
        case "PUBS":
            return _publish(rest)
        case "SUBS":
            return _subscribe(rest.split())
        case "CONS":
            return _consume(rest.split())
        case "TOPICS":
            return _topics(rest.split())
        case "HELP" | "?":
            return Help()
        case "QUIT" | "EXIT":
            return Quit()
    if verb in _FOREIGN:
        raise ForeignProtocol(verb)
    raise BadCommand(f"unknown command {verb[:20]!r}; HELP lists the commands")


def matches(pattern: str, topic: str) -> bool:
    """Whether `pattern` selects `topic`. A pattern never selects internal topics."""
    if pattern == topic:
        return True
    return not topic.startswith("__") and fnmatchcase(topic, pattern)


def is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


def _publish(rest: str) -> Publish:
    topic, _, message = rest.partition(" ")
    if not topic or not message:
        raise BadCommand("usage: PUBS topic message")
    _check_topic(topic)
    return Publish(topic, message)


def _subscribe(words: list[str]) -> Subscribe:
    if not 2 <= len(words) <= 3:
        raise BadCommand("usage: SUBS topic group [partitions]")
    _check_pattern(words[0])
    if len(words[1]) > NAME_LENGTH_MAX:
        raise BadCommand("the name of the group is too long")
    count = _number(words[2], "partitions") if len(words) == 3 else None
    if count == 0:
        raise BadCommand("partitions must be at least 1")
    return Subscribe(words[0], words[1], count)


def _consume(words: list[str]) -> Consume:
    if not 2 <= len(words) <= 3:
        raise BadCommand("usage: CONS topic subscription [offset]")
    _check_pattern(words[0])
    if len(words) == 2:
        return Consume(words[0], words[1], None)
    partition, colon, offset = words[2].rpartition(":")
    return Consume(
        words[0],
        words[1],
        _number(offset, "offset"),
        _number(partition, "partition") if colon else None,
    )


def _topics(words: list[str]) -> Topics:
    if len(words) > 1:
        raise BadCommand("usage: TOPICS [pattern]")
    if words:
        _check_pattern(words[0])
        return Topics(words[0])
    return Topics()


def _check_topic(name: str) -> None:
    if not _TOPIC.fullmatch(name) or len(name) > NAME_LENGTH_MAX or name in (".", ".."):
        raise BadCommand("a topic has letters, digits, dots, dashes and underscores in its name")


def _check_pattern(text: str) -> None:
    if not _PATTERN.fullmatch(text) or len(text) > NAME_LENGTH_MAX:
        raise BadCommand("a topic has letters, digits, . - _ in its name; * and ? stand for others")


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise BadCommand(f"{what} must be a number, not {text[:20]!r}")
    return int(text)
