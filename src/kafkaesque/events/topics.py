"""Declarations of topics, and the topics of the sources.

Services communicate only through the topics declared in this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic that a service needs. It is created if absent and never altered."""

    name: str
    partitions: int
    key: str
    """The meaning of the record key. Records with equal keys keep their order."""
    doc: str
    configs: Mapping[str, str] = field(default_factory=dict)


SOCIAL_POSTS = TopicSpec(
    name="social.posts",
    partitions=3,
    key="NETWORK/POST ID",
    doc="Posts, their edits and their deletions. Keyed by post and not by author, because a deletion on "
    "Mastodon names no author and must follow its post.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
SOCIAL_CURSORS = TopicSpec(
    name="social.cursors",
    partitions=1,
    key="SOURCE NAME/STREAM",
    doc="How far each source has read its network; the newest record of a key is valid.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)
SOCIAL_REJECTED = TopicSpec(
    name="social.rejected",
    partitions=1,
    key="SOURCE NAME",
    doc="Dead letters of the sources: frames that could not be parsed, with the reason.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)

SOCIAL_TOPICS = (SOCIAL_POSTS, SOCIAL_CURSORS, SOCIAL_REJECTED)
