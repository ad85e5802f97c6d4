"""The deduplication window: recently seen posts, to drop duplicates and match deletions. Pure.

The window is bounded by count. It is rebuilt from the end of the log at each start, so its verdicts do
not depend on which process saw a post. A duplicate after more than `posts_max` other posts is admitted.
"""

from __future__ import annotations

from enum import Enum

from kafkaesque.events.social import Post, PostDeleted, PostEdited, PostEvent, post_key

_DELETED = -1
_UNEDITED = 0


class DedupVerdict(Enum):
    """The window's decision about an event."""

    NEW = "new"
    DUPLICATE = "duplicate"
    FOREIGN = "foreign"
    """An edit or deletion of a post that is not in the window."""
    WITHDRAWN = "withdrawn"
    """A post whose deletion arrived before it."""


class DedupWindow:
    """Up to `posts_max` posts that are in the log, and `tombstones_max` deletions of posts that are not."""

    def __init__(self, posts_max: int, tombstones_max: int) -> None:
        self._posts_max = posts_max
        self._tombstones_max = tombstones_max
        self._posts: dict[str, int] = {}
        """By post key, the time of the last edit or _DELETED; oldest first."""
        self._tombstones: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._posts)

    def admit(self, event: PostEvent) -> DedupVerdict:
        """Classifies `event` and adds it to the window."""
        key = post_key(event)
        match event:
            case Post():
                return self._admit_post(key)
            case PostEdited():
                return self._admit_edit(key, event.edited_ms)
            case PostDeleted():
                return self._admit_deletion(key)

    def remember(self, event: PostEvent) -> None:
        """Adds an event that was read from the log, without classifying it."""
        key = post_key(event)
        if key not in self._posts:
            self._add(key, _UNEDITED)
        if isinstance(event, PostEdited) and self._posts[key] != _DELETED:
            self._posts[key] = max(self._posts[key], event.edited_ms)
        if isinstance(event, PostDeleted):
            self._posts[key] = _DELETED

    def _admit_post(self, key: str) -> DedupVerdict:
        if key in self._posts:
            return DedupVerdict.DUPLICATE
        if key in self._tombstones:
            return DedupVerdict.WITHDRAWN
        self._add(key, _UNEDITED)
        return DedupVerdict.NEW

    def _admit_edit(self, key: str, edited_ms: int) -> DedupVerdict:
        known = self._posts.get(key)
        if known is None:
            return DedupVerdict.FOREIGN
        if known == _DELETED or edited_ms <= known:
            return DedupVerdict.DUPLICATE
        self._posts[key] = edited_ms
        return DedupVerdict.NEW

    def _admit_deletion(self, key: str) -> DedupVerdict:
        known = self._posts.get(key)
        if known is None:
            self._tombstones.pop(key, None)
            self._tombstones[key] = None
            if len(self._tombstones) > self._tombstones_max:
                del self._tombstones[next(iter(self._tombstones))]
            return DedupVerdict.FOREIGN
        self._posts[key] = _DELETED
        return DedupVerdict.DUPLICATE if known == _DELETED else DedupVerdict.NEW

    def _add(self, key: str, state: int) -> None:
        self._posts[key] = state
        if len(self._posts) > self._posts_max:
            del self._posts[next(iter(self._posts))]
