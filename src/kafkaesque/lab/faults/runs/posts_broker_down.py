"""Document 003's experiment: posts of a network through three brokers to three concurrent consumers
and the pipeline, and one broker is shut down in mid-stream."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from kafkaesque.events.topics import SOCIAL_POSTS
from kafkaesque.lab.faults.cluster_run import ClusterRun
from kafkaesque.lab.faults.cluster_target import BROKERS
from kafkaesque.lab.faults.posts import Consumed, Expected, PostConsumer, read_status, table_posts
from kafkaesque.lab.faults.runs.pipeline_driver_kill import Run as DriverKill
from kafkaesque.lab.faults.runs.service_process import ServiceProcess, kafkaesque
from kafkaesque.lab.faults.stage import RunOptions, Stage
from kafkaesque.lab.faults.target import Target, TargetUnwell
from kafkaesque.lab.faults.workload import WorkloadSettings

POSTS: Final = 3000
POSTS_PER_S: Final = 100
CONSUMERS: Final = 3
GROUP: Final = "posts-readers"
QUERY: Final = "posts"
RECORDS_PER_S_MAX: Final = 200
FAULT_AT: Final = 0.3
"""The share of the posts that is there when the broker goes."""
ARRIVE_S: Final = 300.0
READY_S: Final = 600.0
"""Spark starts in 10 s on a machine at rest, and in minutes beside a dozen others."""
_POLL_S: Final = 0.1


class Run(ClusterRun):
    purpose = "posts to three consumers and the pipeline, and one of three brokers is shut down"
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

    def workload(self, options: RunOptions) -> WorkloadSettings:
        """The usual load beside the posts, with the experiment's partitions and consumers."""
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
        return DriverKill().impossible()

    @contextlib.contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        self._directory = directory
        with super().open_target(directory, settings) as target:
            try:
                yield target
            finally:
                self._stack.close()

    # -- the experiment ---------------------------------------------------------------------------

    def begin(self, stage: Stage) -> None:
        super().begin(stage)
        seed = stage.random.randrange(1 << 20)
        self._expected = Expected.of(seed, POSTS)
        bootstrap = stage.target.bootstrap_servers
        server = self._start(
            "server",
            *("source", "serve", "--seed", str(seed), "--rate", str(POSTS_PER_S)),
            *("--count", str(POSTS), "--end-with-stdin"),
        )
        stage.workload.create_topic(SOCIAL_POSTS.name, SOCIAL_POSTS.partitions)
        for _ in range(CONSUMERS):
            self._consumers.append(PostConsumer(bootstrap, GROUP, self._consumed))
            self._consumers[-1].start()
        stage.say("starting the pipeline")
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

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.1):
            if stage.rounds_done > 1:
                self.cluster.heal()
                self.cluster.wait_whole()
            self._wait_for_share(FAULT_AT * stage.rounds_done)
            node = self.cluster.leader_of((SOCIAL_POSTS.name, 0))
            keys = self.keys_led_by(stage, [node])
            stage.fault(f"shut down node {node} after {len(self._consumed.posts)} posts", keys)
            self.cluster.stop(node)
            stage.count("shutdowns")
            self.wait_until_served(stage, keys)
        stage.say("waiting for all posts")
        self._wait("every post at the consumers", self._is_consumed)
        self._wait("every post in the table", self._is_in_the_table)

    def _wait_for_share(self, share: float) -> None:
        self._wait("posts in mid-stream", lambda: len(self._consumed.posts) >= POSTS * share)

    def _is_consumed(self) -> bool:
        with self._consumed.lock:
            posts, deleted = set(self._consumed.posts.values()), self._consumed.deleted.values()
        return self._expected.posts <= posts and self._expected.deleted <= set(deleted)

    def _is_in_the_table(self) -> bool:
        """The query has read up to where the consumers are."""
        status = read_status(self._directory / "pipeline" / "queries" / QUERY / "status.json")
        offsets = status.get("end_offsets")
        reached = offsets.get(SOCIAL_POSTS.name, {}) if isinstance(offsets, dict) else {}
        if status.get("state") != "running":
            raise TargetUnwell(f"the pipeline does not run any more: {status.get('failure')}")
        with self._consumed.lock:
            places = list(self._consumed.places)
        return all(offset < reached.get(str(partition), 0) for partition, offset in places)

    def _wait(self, what: str, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ARRIVE_S
        while not is_so():
            if time.monotonic() > deadline:
                raise TargetUnwell(f"not within {ARRIVE_S:g} s: {what}")
            time.sleep(_POLL_S)

    # -- at the end -------------------------------------------------------------------------------

    def complaints(self, stage: Stage) -> list[str]:
        found = []
        for name, process in (("source", self._source), ("pipeline", self._pipeline)):
            code = process.stop() if process is not None else None
            if code != 0:
                found.append(f"the {name} ended with {code}")
        for consumer in self._consumers:
            consumer.end()
        found += self._judge(stage)
        return [*found, *super().complaints(stage)]

    def _judge(self, stage: Stage) -> list[str]:
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
        stage.notes |= {"posts": len(expected.posts), **figures}
        stage.notes["posts_handed_to_a_consumer_twice"] = consumed.handed_twice
        return [f"{name}: {value}" for name, value in figures.items() if value]
