"""What names, texts and ids may be, and how large anything in chat may grow. Pure."""

from __future__ import annotations

import re
from typing import Final

NAME_LENGTH_MAX: Final = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]{0,31}")
NAME_RULE: Final = "1 to 32 of a-z 0-9 _ . - beginning with a letter or digit"
TEXT_LENGTH_MAX: Final = 4000
ID_LENGTH_MAX: Final = 128
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")

COMMANDS_REMEMBERED_MAX: Final = 512
"""Command ids of a user against which a repeat is known. A client keeps fewer unacknowledged."""
CONVERSATIONS_MAX: Final = 1000
ROOMS_OF_USER_MAX: Final = 200
MEMBERS_MAX: Final = 1000
MESSAGES_KEPT_MAX: Final = 200
"""Of a conversation or room; older ones are forgotten, the undelivered never."""
TEXT_KEPT_BYTES_MAX: Final = 256 * 1024
"""Of a conversation or room: one entity of a snapshot fits in one record of any Kafka."""
UNDELIVERED_MAX: Final = 150
UNDELIVERED_BYTES_MAX: Final = 192 * 1024
"""Of a conversation; a sender beyond that is refused. Below what is kept, so nothing of it is forgotten."""
RECEIPT_IDS_MAX: Final = 500
PAGE_MAX: Final = 200
PAGE_TEXT_BYTES_MAX: Final = 256 * 1024
"""Of one answer, which must fit in a record."""


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_text(text: str) -> bool:
    """Something to read, of bounded length, without control characters other than tab and newline."""
    return 0 < len(text) <= TEXT_LENGTH_MAX and bool(text.strip()) and not _CONTROL.search(text)


def is_id(text: str) -> bool:
    return 0 < len(text) <= ID_LENGTH_MAX and text.isprintable() and "/" not in text


def message_id(sender: str, local_id: str) -> str:
    """Unique among all messages, because a sender's command ids are; tells who sent it."""
    return f"{sender}/{local_id}"


def sender_of(one_message_id: str) -> str:
    return one_message_id.partition("/")[0]


def conversation_id(one: str, other: str) -> str:
    """The same for both; `~` is in no name."""
    return f"{min(one, other)}~{max(one, other)}"


def room_conversation_id(room: str) -> str:
    return f"#{room}"
