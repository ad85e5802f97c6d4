"""The players of document 003's experiment: a source that follows a network, consumers of a group, and
the pipeline, each as users run them; and what must be true of the posts at the end.

The posts come from the seeded generator, so that what must have arrived can be computed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException

from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.social import POSTS, Post, PostDeleted
from kafkaesque.events.topics import SOCIAL_POSTS
from kafkaesque.lab.faults.clients import SILENT, consumer_settings
from kafkaesque.sources.rules import generator

STOP_S: Final = 60.0
_POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Expected:
    """What a timeline of `count` posts must leave."""

    posts: frozenset[str]
    deleted: frozenset[str]

    @classmethod
    def of(cls, seed: int, count: int) -> Expected:
        posts = list(generator.posts(seed, 0, count))
        return cls(
            frozenset(post.uri for post in posts),
            frozenset(
                post.uri
                for post in posts
                if post.deleted_after and post.number + post.deleted_after < count
            ),
        )


@dataclass(slots=True)
class Consumed:
    """What a group of consumers was handed."""

    places: Counter[tuple[int, int]] = field(default_factory=Counter)
    posts: dict[tuple[int, int], str] = field(default_factory=dict)
    deleted: dict[tuple[int, int], str] = field(default_factory=dict)
    unreadable: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, place: tuple[int, int], value: bytes) -> None:
        with self.lock:
            self.places[place] += 1
            try:
                body = POSTS.decode(value).body
            except MalformedEvent:
                self.unreadable += 1
                return
            if isinstance(body, Post):
                self.posts[place] = body.id
            elif isinstance(body, PostDeleted):
                self.deleted[place] = body.id

    @property
    def doubled(self) -> int:
        """Posts that stand in the log at more than one place."""
        return len(self.posts) - len(set(self.posts.values()))

    @property
    def handed_twice(self) -> int:
        return sum(count - 1 for count in self.places.values())


class PostConsumer(threading.Thread):
    """One member of the group; commits what it has counted."""

    def __init__(self, bootstrap: str, group: str, consumed: Consumed) -> None:
        super().__init__(name=f"{group}-member", daemon=True)
        settings = {
            **consumer_settings(bootstrap, group),
            # A topic that comes into being after the members is looked for again this soon.
            "topic.metadata.refresh.interval.ms": 500,
        }
        self._consumer = Consumer(settings, logger=SILENT)
        self._consumed = consumed
        self._ending = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([SOCIAL_POSTS.name])
        while not self._ending.is_set():
            messages = self._consumer.consume(200, _POLL_S)
            for message in messages:
                value, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self._consumed.take((partition, offset), value or b"")
                    self._consumer.store_offsets(message)
            if messages:
                with contextlib.suppress(KafkaException):
                    # The next commit says the same and more.
                    self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join(STOP_S)


def read_status(path: Path) -> dict[str, object]:
    """The status that the pipeline keeps of a query; empty where there is none yet."""
    with contextlib.suppress(OSError, json.JSONDecodeError):
        found: dict[str, object] = json.loads(path.read_text())
        return found
    return {}


def table_posts(path: Path) -> Counter[str]:
    """The ids in the pipeline's table of posts."""
    from deltalake import DeltaTable

    return Counter(DeltaTable(path).to_pyarrow_table(columns=["id"])["id"].to_pylist())
