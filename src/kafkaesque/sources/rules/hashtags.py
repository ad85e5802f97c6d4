"""What a hashtag is, and whether a post has one that is followed. Pure.

Networks compare hashtags without regard to case; so do we, after Unicode's compatibility
normalisation (full-width letters are the same tag).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from kafkaesque.events.social import TAGS_MAX

TAG_LENGTH_MAX = 200

# A tag is a run of word characters and their combining marks (which `\w` leaves out: half of Hindi),
# at least one of them no digit, after a # that does not itself follow a word character (`issue#7`,
# `&#39;`). The full-width sign counts, as in Japanese.
_SIGN = re.compile(r"(?<![\w&/])[#＃](?=\S)")
_JOINERS = "\u200c\u200d·"


def normalise(tag: str) -> str:
    """The form under which a tag is compared and kept; empty if it is none."""
    text = unicodedata.normalize("NFKC", tag.strip()).lstrip("#").casefold()
    return text if 0 < len(text) <= TAG_LENGTH_MAX and not re.search(r"[\s#]", text) else ""


def tags_in_text(text: str) -> list[str]:
    found = (_word_at(text, match.end()) for match in _SIGN.finditer(text))
    return [word for word in found if word and not word.isdecimal()]


def _word_at(text: str, start: int) -> str:
    end = start
    while end < min(len(text), start + TAG_LENGTH_MAX) and _belongs(text[end]):
        end += 1
    return text[start:end].rstrip(_JOINERS)


def _belongs(character: str) -> bool:
    return (
        character.isalnum()
        or character == "_"
        or character in _JOINERS
        or unicodedata.category(character)[0] == "M"
    )


def distinct(tags: Iterable[str]) -> tuple[str, ...]:
    """Normalised, each once, in order of appearance, at most TAGS_MAX."""
    found = dict.fromkeys(name for tag in tags if (name := normalise(tag)))
    return tuple(found)[:TAGS_MAX]


class Following:
    """The hashtags that a source follows; none means every post."""

    def __init__(self, tags: Iterable[str] = ()) -> None:
        self.tags = distinct(tags)
        self._wanted = frozenset(self.tags)

    def matches(self, tags: Iterable[str]) -> bool:
        """Whether a post with these (normalised) tags is followed."""
        return not self._wanted or not self._wanted.isdisjoint(tags)
