"""Posts of a social network flow through three brokers to three consumers and the pipeline, and a broker
is shut down in mid-stream.

Source, consumers and pipeline run as users run them. The posts come from the seeded generator, so that
the expected result can be computed.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, KafkaException

from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.social import POSTS as POST_EVENTS
from kafkaesque.events.social import Post, PostDeleted
from kafkaesque.events.topics import SOCIAL_POSTS
from kafkaesque.lab.faults.clients import SILENT, consumer_settings
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.fault_run import FaultRunContext, FaultRunOptions
from kafkaesque.lab.faults.runs.pipeline_driver_kill import PipelineDriverKill
from kafkaesque.lab.faults.workload import WorkloadSettings
from kafkaesque.lab.harness.cluster import BROKERS, BrokerSettings, Target, TargetFailed
from kafkaesque.lab.harness.service_process import ServiceProcess, kafkaesque
from kafkaesque.sources.rules import generator
from kafkaesque.testing.waiting import poll_until

POSTS: Final = 3000
POSTS_PER_S: Final = 100
CONSUMERS: Final = 3
GROUP: Final = "posts-readers"
QUERY: Final = "posts"
RECORDS_PER_S_MAX: Final = 200
FAULT_AT: Final = 0.3
"""The share of the posts that the consumers have when the broker is shut down."""
ARRIVE_S: Final = 300.0
READY_S: Final = 600.0
"""Spark starts in 10 s on an idle machine, and in minutes on a busy one."""
_POLL_S: Final = 0.1
_STOP_S: Final = 60.0
_CONSUME_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Expected:
    """The ids that a timeline of `count` posts contains, and those it deletes again."""

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
    """Everything that a group of consumers received."""

    places: Counter[tuple[int, int]] = field(default_factory=Counter)
    posts: dict[tuple[int, int], str] = field(default_factory=dict)
    deleted: dict[tuple[int, int], str] = field(default_factory=dict)
    unreadable: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, place: tuple[int, int], value: bytes) -> None:
        with self.lock:
            self.places[place] += 1
            try:
                body = POST_EVENTS.decode(value).body
            except MalformedEvent:
                self.unreadable += 1
                return
            if isinstance(body, Post):
                self.posts[place] = body.id
            elif isinstance(body, PostDeleted):
                self.deleted[place] = body.id

    @property
    def doubled(self) -> int:
        """How many posts are in the log more than once."""
        return len(self.posts) - len(set(self.posts.values()))

    @property
    def received_twice(self) -> int:
        return sum(count - 1 for count in self.places.values())


class PostConsumer(threading.Thread):
    """One member of the group; commits after counting."""

    def __init__(self, bootstrap: str, group: str, consumed: Consumed) -> None:
        super().__init__(name=f"{group}-member", daemon=True)
        settings = {
            **consumer_settings(bootstrap, group),
            # Find a topic that is created after the members join.
            "topic.metadata.refresh.interval.ms": 500,
        }
        self._consumer = Consumer(settings, logger=SILENT)
        self._consumed = consumed
        self._ending = threading.Event()

    def run(self) -> None:
        self._consumer.subscribe([SOCIAL_POSTS.name])
        while not self._ending.is_set():
            messages = self._consumer.consume(200, _CONSUME_S)
            for message in messages:
                value, partition, offset = message.value(), message.partition(), message.offset()
                if message.error() is None and partition is not None and offset is not None:
                    self._consumed.take((partition, offset), value or b"")
                    self._consumer.store_offsets(message)
            if messages:
                with contextlib.suppress(KafkaException):
                    # The next commit covers this one.
                    self._consumer.commit(asynchronous=False)
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join(_STOP_S)


def read_status(path: Path) -> dict[str, object]:
    """The status file of a pipeline query; empty while there is none."""
    with contextlib.suppress(OSError, json.JSONDecodeError):
        found: dict[str, object] = json.loads(path.read_text())
        return found
    return {}


def table_posts(path: Path) -> Counter[str]:
    """How often each id is in the pipeline's table of posts."""
    from deltalake import DeltaTable

    return Counter(DeltaTable(path).to_pyarrow_table(columns=["id"])["id"].to_pylist())


class PostsBrokerDown(ClusterRun):
    purpose = "shut down one of three brokers while posts flow to three consumers and the pipeline"
    promise = "no post is lost or doubled: in the log, at the consumers, in the pipeline's table"
    rounds = 1

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._directory = Path()
        self._consumed = Consumed()
        self._consumers: list[PostConsumer] = []
        self._source: ServiceProcess | None = None
        self._pipeline: ServiceProcess | None = None
        self._expected = Expected(frozenset(), frozenset())

    def workload(self, options: FaultRunOptions) -> WorkloadSettings:
        """The usual load in addition to the posts, with as many partitions and consumers."""
        return WorkloadSettings(
            records_per_s=min(options.records_per_s, RECORDS_PER_S_MAX),
            seed=options.seed,
            topics=1,
            partitions_per_topic=3,
            replication_factor=BROKERS,
            assigned_readers=1,
            subscribed_readers=CONSUMERS,
        )

    def impossible(self) -> str | None:
        return PipelineDriverKill().impossible()

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: BrokerSettings) -> Iterator[Target]:
        self._directory = directory
        with super().open_target(directory, settings) as target:
            try:
                yield target
            finally:
                self._stack.close()

    def begin(self, context: FaultRunContext) -> None:
        super().begin(context)
        seed = context.random.randrange(1 << 20)
        self._expected = Expected.of(seed, POSTS)
        bootstrap = context.target.bootstrap_servers
        server = self._start(
            "server",
            *("source", "serve", "--seed", str(seed), "--rate", str(POSTS_PER_S)),
            *("--count", str(POSTS), "--end-with-stdin"),
        )
        context.workload.create_topic(SOCIAL_POSTS.name, SOCIAL_POSTS.partitions)
        for _ in range(CONSUMERS):
            self._consumers.append(PostConsumer(bootstrap, GROUP, self._consumed))
            self._consumers[-1].start()
        context.say("starting the pipeline")
        self._pipeline = self._start(
            "pipeline",
            *("pipeline", "run", QUERY, "--bootstrap-server", bootstrap),
            *("--data", str(self._directory / "pipeline"), "--master", "local[2]"),
        )
        self._source = self._start(
            "source",
            *("source", "run", "bluesky", "--bootstrap-server", bootstrap),
            *("--url", f"http://{server.facts['http']}", "--end-with-stdin"),
            *("--data", str(self._directory / "source"), "--set", "backoff.scale=0.1"),
        )

    def _start(self, name: str, *words: str) -> ServiceProcess:
        process = ServiceProcess(name, kafkaesque(*words), self._directory, ready_s=READY_S)
        self._stack.callback(process.kill)
        process.start()
        return process

    def inject(self, context: FaultRunContext) -> None:
        while context.another_round(0.1):
            if context.rounds_done > 1:
                self.cluster.heal()
                self.cluster.wait_recovered()
            self._wait_for_share(FAULT_AT * context.rounds_done)
            node = self.cluster.wait_for_leader((SOCIAL_POSTS.name, 0))
            keys = self.keys_led_by(context, [node])
            context.fault(f"shut down node {node} after {len(self._consumed.posts)} posts", keys)
            self.cluster.terminate(node)
            context.count("shutdowns")
            self.wait_until_served(context, keys)
        context.say("waiting for all posts")
        self._wait("every post at the consumers", self._is_consumed)
        self._wait("every post in the table", self._is_in_the_table)

    def _wait_for_share(self, share: float) -> None:
        self._wait("posts in mid-stream", lambda: len(self._consumed.posts) >= POSTS * share)

    def _is_consumed(self) -> bool:
        with self._consumed.lock:
            posts, deleted = set(self._consumed.posts.values()), self._consumed.deleted.values()
        return self._expected.posts <= posts and self._expected.deleted <= set(deleted)

    def _is_in_the_table(self) -> bool:
        """Whether the query has read as far as the consumers."""
        status = read_status(self._directory / "pipeline" / "queries" / QUERY / "status.json")
        offsets = status.get("end_offsets")
        reached = offsets.get(SOCIAL_POSTS.name, {}) if isinstance(offsets, dict) else {}
        if status.get("state") != "running":
            raise TargetFailed(f"the pipeline is not running: {status.get('failure')}")
        with self._consumed.lock:
            places = list(self._consumed.places)
        return all(offset < reached.get(str(partition), 0) for partition, offset in places)

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        poll_until(is_so, what, ARRIVE_S, poll_s=_POLL_S, error=TargetFailed)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, context: FaultRunContext) -> list[str]:
        found = []
        for name, process in (("source", self._source), ("pipeline", self._pipeline)):
            code = process.stop() if process is not None else None
            if code != 0:
                found.append(f"the {name} ended with {code}")
        for consumer in self._consumers:
            consumer.end()
        found += self._compare_with_expected(context)
        return [*found, *super().complaints(context)]

    def _compare_with_expected(self, context: FaultRunContext) -> list[str]:
        expected, consumed = self._expected, self._consumed
        in_table = table_posts(self._directory / "pipeline" / "tables" / "posts")
        must_stay = expected.posts - expected.deleted
        at_consumers = set(consumed.posts.values())
        figures = {
            "posts_lost": len(expected.posts - at_consumers),
            "posts_doubled": consumed.doubled,
            "posts_lost_in_table": len(must_stay - in_table.keys()),
            "posts_doubled_in_table": sum(in_table.values()) - len(in_table),
            "deleted_posts_in_table": len(expected.deleted & in_table.keys()),
            "posts_unreadable": consumed.unreadable,
        }
        context.notes |= {"posts": len(expected.posts), **figures}
        context.notes["posts_handed_to_a_consumer_twice"] = consumed.received_twice
        return [f"{name}: {value}" for name, value in figures.items() if value]
