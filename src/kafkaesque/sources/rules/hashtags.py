"""Finds, normalises and filters hashtags. Pure.

As on the networks, the comparison ignores case. Unicode compatibility normalisation is applied first, so
that full-width letters are the same tag.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from kafkaesque.events.social import TAGS_MAX

TAG_LENGTH_MAX = 200

# A tag is a run of word characters and combining marks (which `\w` excludes, and Hindi needs), at least
# one of which is not a digit, after a # that does not follow a word character (`issue#7`, `&#39;`). The
# full-width sign counts too, as used in Japanese.
_SIGN = re.compile(r"(?<![\w&/])[#＃](?=\S)")
_JOINERS = "\u200c\u200d·"


def normalise(tag: str) -> str:
    """The normal form of a tag for comparison and storage; empty if it is not a valid tag."""
    text = unicodedata.normalize("NFKC", tag.strip()).lstrip("#").casefold()
    return text if 0 < len(text) <= TAG_LENGTH_MAX and not re.search(r"[\s#]", text) else ""


def tags_in_text(text: str) -> list[str]:
    found = (_tag_at(text, match.end()) for match in _SIGN.finditer(text))
    return [word for word in found if word and not word.isdecimal()]


def _tag_at(text: str, start: int) -> str:
    end = start
    while end < min(len(text), start + TAG_LENGTH_MAX) and _is_tag_character(text[end]):
        end += 1
    return text[start:end].rstrip(_JOINERS)


def _is_tag_character(character: str) -> bool:
    return (
        character.isalnum()
        or character == "_"
        or character in _JOINERS
        or unicodedata.category(character)[0] == "M"
    )


def distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """The distinct normalised tags, in order of appearance, at most TAGS_MAX."""
    found = dict.fromkeys(name for tag in tags if (name := normalise(tag)))
    return tuple(found)[:TAGS_MAX]


class HashtagFilter:
    """Matches posts with one of the given hashtags; without hashtags, every post."""

    def __init__(self, tags: Iterable[str] = ()) -> None:
        self.tags = distinct(tags)
        self._wanted = frozenset(self.tags)

    def matches(self, tags: Iterable[str]) -> bool:
        """Whether a post with these (normalised) tags matches."""
        return not self._wanted or not self._wanted.isdisjoint(tags)
