"""Sample events."""

from __future__ import annotations

from kafkaesque.events.social import Post, PostDeleted, PostEdited
from kafkaesque.model.ids import TimestampMs

AT = TimestampMs(1_790_000_000_000)


def post(name: str, *tags: str) -> Post:
    return Post(
        network="x", id=name, author="a", text="t", tags=tags, languages=(), created_ms=AT, seen_ms=AT
    )  # fmt: skip


def edit(name: str, edited_ms: int) -> PostEdited:
    return PostEdited(
        network="x", id=name, text="t", tags=(), languages=(), edited_ms=TimestampMs(edited_ms),
        seen_ms=AT,
    )  # fmt: skip


def deletion(name: str) -> PostDeleted:
    return PostDeleted(network="x", id=name, deleted_ms=AT)
