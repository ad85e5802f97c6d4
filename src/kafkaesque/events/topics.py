"""Every topic of the services: name, key, partitions, settings, who writes, who reads.

A service that wants something of another writes to a topic declared here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic as a service needs it. Created if absent; never altered when it is there."""

    name: str
    partitions: int
    key: str
    """What the record key is; records of equal keys keep their order."""
    doc: str
    configs: Mapping[str, str] = field(default_factory=dict)


SOCIAL_POSTS = TopicSpec(
    name="social.posts",
    partitions=3,
    key="NETWORK/POST ID",
    doc="Posts, their edits and their deletions, as the sources saw them. Keyed by post and not by "
    "author because a deletion on Mastodon names no author, and must follow its post.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
SOCIAL_CURSORS = TopicSpec(
    name="social.cursors",
    partitions=1,
    key="SOURCE NAME/STREAM",
    doc="How far each source has read its network; the newest record of a key counts.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)
SOCIAL_REJECTED = TopicSpec(
    name="social.rejected",
    partitions=1,
    key="SOURCE NAME",
    doc="Frames that a source could not read, with the reason: the dead letters of the sources.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)

SOCIAL_TOPICS = (SOCIAL_POSTS, SOCIAL_CURSORS, SOCIAL_REJECTED)
