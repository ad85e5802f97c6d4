"""Synthetic posts: post n of seed s is the same on every machine and Python version. Pure.

    for post in posts(seed=7, start=0, count=1000): ...

Hashtags follow Zipf's law, some blocks are bursts about one tag, authors write in several languages,
some posts are late (created before they appear), some appear twice, some are deleted after a while.
Randomness comes from BLAKE2b and not from `random`, whose methods may change between versions.

`entries(seed, n)` is what a network publishes at tick n: post n, and repetitions and deletions of
earlier posts.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

NOMINAL_RATE = 50
"""Posts per second of `offset_us`; a server may run a timeline faster or slower."""
GAP_US = 1_000_000 // NOMINAL_RATE
BLOCK_POSTS = 250
BLOCK_US = BLOCK_POSTS * GAP_US
BURST_POSTS = 150
"""The first posts of a block with a burst, which come BURST_FACTOR times as fast."""
BURST_FACTOR = 4
ECHO_DISTANCE_MAX = 40
"""Maximum distance of a repetition or deletion from its post, in ticks."""
AUTHORS = 500

_ID_EPOCH_US = 1_577_836_800_000_000
_X_EPOCH_MS = 1_288_834_974_657
_BASE32 = "234567abcdefghijklmnopqrstuvwxyz"

TAGS = (
    "news", "python", "kafka", "music", "football", "art", "ai", "raft", "photography", "climate",
    "linux", "books", "cats", "science", "travel", "food", "gaming", "streaming", "history", "space",
    "nowplaying", "opensource", "databases", "caturday", "アニメ", "fotografie", "noticias", "météo",
    "ciência", "猫", "distributed", "gardening", "typography", "चाय", "marathon", "chess", "privacy",
    "electronics", "theatre", "birds",
)  # fmt: skip
_PHRASES = {
    "en": ("first light on the", "still thinking about", "nobody warned me about", "a thread on"),
    "es": ("otra tarde con", "todo lo que sé de", "hoy aprendí algo sobre"),
    "de": ("heute nur", "ein Wort zu", "schon wieder", "Grüße aus der Welt von"),
    "ja": ("今日の", "これが好き", "まだ考えている"),
    "pt": ("mais um dia de", "alguém mais gosta de", "não paro de pensar em"),
    "fr": ("encore un peu de", "ce matin", "rien que pour"),
    "hi": ("आज का", "सुबह की"),
}
_LANGUAGES = ("en",) * 9 + ("es",) * 3 + ("de",) * 2 + ("ja",) * 3 + ("pt",) * 2 + ("fr", "hi")
_ENDINGS = ("", " ☕", " again", "!", " …", " 🚀", " & more", " <3")

_WEIGHTS = tuple(itertools.accumulate(1_000_000 // (rank + 1) for rank in range(len(TAGS))))


class TimelineEntryKind(Enum):
    """The effect of an entry."""

    POST = "post"
    REPEAT = "repeat"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class SyntheticPost:
    """Post `number` of `seed`. Times are relative to the start of the timeline."""

    seed: int
    number: int
    author: int
    language: str
    text: str
    tags: tuple[str, ...]
    offset_us: int
    late_ms: int
    repeated_after: int
    """Ticks until it appears again; 0 if it does not."""
    deleted_after: int
    """Ticks until it is deleted; 0 if it stays."""

    @property
    def did(self) -> str:
        digest = hashlib.blake2b(f"{self.seed}/author/{self.author}".encode()).digest()
        return "did:plc:" + "".join(_BASE32[byte % 32] for byte in digest[:24])

    @property
    def record_key(self) -> str:
        """The record key on Bluesky: a TID, thirteen base-32 digits of microseconds."""
        value = self._id_us << 10
        return "".join(_BASE32[value >> shift & 31] for shift in range(60, -1, -5))

    @property
    def uri(self) -> str:
        return f"at://{self.did}/app.bsky.feed.post/{self.record_key}"

    @property
    def status_id(self) -> int:
        """The id on Mastodon: milliseconds and a sequence number."""
        return self._id_us // 1000 << 16 | self._id_us % 1000

    @property
    def x_id(self) -> int:
        return self._id_us // 1000 - _X_EPOCH_MS << 22 | self._id_us % 1000

    @property
    def _id_us(self) -> int:
        return _id_base_us(self.seed) + self.offset_us


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One item that a network publishes: the `order`-th of tick `tick`."""

    what: TimelineEntryKind
    post: SyntheticPost
    tick: int
    order: int


class _HashRandom:
    """Random numbers drawn successively from one hash."""

    def __init__(self, *words: object) -> None:
        digest = hashlib.blake2b("/".join(map(str, words)).encode()).digest()
        self._left = int.from_bytes(digest, "big")

    def below(self, bound: int) -> int:
        self._left, drawn = divmod(self._left, bound)
        return drawn

    def chosen(self, items: Sequence[str]) -> str:
        return items[self.below(len(items))]

    def tag(self) -> str:
        """By Zipf's law: the tag of rank r is 1/r as frequent as the first."""
        return TAGS[bisect.bisect_right(_WEIGHTS, self.below(_WEIGHTS[-1]))]


def posts(seed: int, start: int, count: int) -> Iterator[SyntheticPost]:
    """Posts `start` to `start + count - 1` of `seed`."""
    return (post(seed, number) for number in range(start, start + count))


@lru_cache(maxsize=8192)
def post(seed: int, number: int) -> SyntheticPost:
    dice = _HashRandom(seed, "post", number)
    language = dice.chosen(_LANGUAGES)
    topic = burst_tag(seed, number // BLOCK_POSTS)
    in_burst = topic is not None and number % BLOCK_POSTS < BURST_POSTS and dice.below(10) < 6
    tags = [topic] if in_burst and topic is not None else []
    # One post in eight has no hashtag, as in an unfiltered stream.
    tags += [dice.tag() for _ in range((0, 1, 1, 1, 1, 2, 2, 3)[dice.below(8)])]
    tags = list(dict.fromkeys(tags))
    words = " ".join(f"#{tag}" for tag in tags)
    return SyntheticPost(
        seed=seed,
        number=number,
        author=dice.below(AUTHORS),
        language=language,
        text=f"{dice.chosen(_PHRASES[language])} {words}{dice.chosen(_ENDINGS)} ({number})",
        tags=tuple(tags),
        offset_us=offset_us(seed, number),
        late_ms=dice.below(600_000) if dice.below(100) < 3 else 0,
        repeated_after=1 + dice.below(ECHO_DISTANCE_MAX) if dice.below(100) < 4 else 0,
        deleted_after=1 + dice.below(ECHO_DISTANCE_MAX) if dice.below(100) < 5 else 0,
    )


def entries(seed: int, tick: int) -> list[TimelineEntry]:
    """The entries published at `tick`, in order; the first is post `tick`."""
    found = [TimelineEntry(TimelineEntryKind.POST, post(seed, tick), tick, 0)]
    for number in range(max(0, tick - ECHO_DISTANCE_MAX), tick):
        earlier = post(seed, number)
        if earlier.repeated_after == tick - number:
            found.append(TimelineEntry(TimelineEntryKind.REPEAT, earlier, tick, len(found)))
        if earlier.deleted_after == tick - number:
            found.append(TimelineEntry(TimelineEntryKind.DELETE, earlier, tick, len(found)))
    return found


@lru_cache(maxsize=1024)
def burst_tag(seed: int, block: int) -> str | None:
    """The hashtag of a block with a burst; None for five blocks in six."""
    dice = _HashRandom(seed, "block", block)
    return dice.chosen(TAGS) if dice.below(6) == 0 else None


def offset_us(seed: int, number: int) -> int:
    """When post `number` appears: microseconds after post 0, strictly increasing."""
    block, index = divmod(number, BLOCK_POSTS)
    if burst_tag(seed, block) is None:
        return block * BLOCK_US + index * GAP_US
    quick_us = GAP_US // BURST_FACTOR
    if index < BURST_POSTS:
        return block * BLOCK_US + index * quick_us
    return block * BLOCK_US + BURST_POSTS * quick_us + (index - BURST_POSTS) * _slow_us()


def count_at(seed: int, at_us: int) -> int:
    """How many posts have appeared `at_us` after the start: the inverse of `offset_us`."""
    if at_us < 0:
        return 0
    block, rest_us = divmod(at_us, BLOCK_US)
    if burst_tag(seed, block) is None:
        return block * BLOCK_POSTS + rest_us // GAP_US + 1
    quick_us = GAP_US // BURST_FACTOR
    if rest_us < BURST_POSTS * quick_us:
        return block * BLOCK_POSTS + rest_us // quick_us + 1
    index = BURST_POSTS + (rest_us - BURST_POSTS * quick_us) // _slow_us()
    return block * BLOCK_POSTS + min(index, BLOCK_POSTS - 1) + 1


def number_of_status(seed: int, status_id: int) -> int:
    """How many posts have a Mastodon id up to `status_id`."""
    at_us = (status_id >> 16) * 1000 + (status_id & 0xFFFF) - _id_base_us(seed)
    return count_at(seed, at_us)


def _slow_us() -> int:
    quick_us = GAP_US // BURST_FACTOR
    return (BLOCK_US - BURST_POSTS * quick_us) // (BLOCK_POSTS - BURST_POSTS)


@lru_cache(maxsize=64)
def _id_base_us(seed: int) -> int:
    """Ids of different seeds are in different periods of the past."""
    return _ID_EPOCH_US + _HashRandom(seed, "ids").below(2**27) * 1_000_000
