"""Rules for names, texts and ids, and the limits of everything in chat. Pure."""

from __future__ import annotations

import re
from typing import Final

NAME_LENGTH_MAX: Final = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
NAME_RULE: Final = "1 to 32 characters of a-z 0-9 _ . - and starts with a letter or digit"
TEXT_LENGTH_MAX: Final = 4000
ID_LENGTH_MAX: Final = 128
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

COMMANDS_REMEMBERED_MAX: Final = 512
"""Command ids kept per user to detect repeats. A client has fewer unacknowledged commands."""
CONVERSATIONS_MAX: Final = 1000
ROOMS_OF_USER_MAX: Final = 200
MEMBERS_MAX: Final = 1000
MESSAGES_KEPT_MAX: Final = 200
"""Per conversation or room. Older messages are dropped, undelivered ones never."""
TEXT_KEPT_BYTES_MAX: Final = 256 * 1024
"""Per conversation or room, so that one snapshot entity fits in one record of any Kafka."""
UNDELIVERED_MAX: Final = 150
UNDELIVERED_BYTES_MAX: Final = 192 * 1024
"""Per conversation; further messages are refused. Below the kept limits, so none of them is dropped."""
RECEIPT_IDS_MAX: Final = 500
PAGE_MAX: Final = 200
PAGE_TEXT_BYTES_MAX: Final = 256 * 1024
"""Per reply, which must fit in a record."""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_text(text: str) -> bool:
    """Not blank, of bounded length, without control characters other than tab and newline."""
    return 0 < len(text) <= TEXT_LENGTH_MAX and bool(text.strip()) and not _CONTROL.search(text)


def is_id(text: str) -> bool:
    return 0 < len(text) <= ID_LENGTH_MAX and text.isprintable() and "/" not in text


def message_id(sender: str, local_id: str) -> str:
    """Globally unique, because a sender's command ids are unique; contains the sender."""
    return f"{sender}/{local_id}"


def sender_of(one_message_id: str) -> str:
    return one_message_id.partition("/")[0]


def conversation_id(one: str, other: str) -> str:
    """The same for both users. Names contain no `~`."""
    return f"{min(one, other)}~{max(one, other)}"


def room_conversation_id(room: str) -> str:
    return f"#{room}"
