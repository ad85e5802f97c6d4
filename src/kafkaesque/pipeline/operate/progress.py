"""What a running query tells: a status file, a feed, metrics, and its place in a consumer group.

Spark calls the listener after each batch. The group gets the batch's end offsets, so that every
Kafka tool sees the lag of a Spark query; a failure to tell is logged and never stops the query.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import Cluster, ClusterSettings, Partition
from kafkaesque.pipeline.kafka.groups import GroupOffsets
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.offsets import from_spark

log = logging.getLogger(__name__)

GROUP_PREFIX = "pipeline."
FEED_SIZE_BYTES_MAX = 4 << 20
"""A feed that has grown beyond this is kept once as `.1` and begun anew."""
_COMMIT_DEADLINE_S = 5.0


class Metrics:
    """Prometheus metrics of all queries of this process, labelled by query."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()

        def gauge(name: str, doc: str) -> Gauge:
            full = f"kafkaesque_pipeline_{name}"
            return Gauge(full, doc, ["query"], registry=self.registry)

        def counter(name: str, doc: str) -> Counter:
            full = f"kafkaesque_pipeline_{name}"
            return Counter(full, doc, ["query"], registry=self.registry)

        self.rows = counter("input_rows", "Records taken in.")
        self.batches = counter("batches", "Batches finished.")
        self.late = counter("late_rows", "Rows dropped because the watermark had passed them.")
        self.failures = counter("failures", "Queries that ended by an error.")
        self.duration_s = gauge("batch_duration_seconds", "Duration of the last batch.")
        self.rate = gauge("processed_rows_per_second", "Rate of the last batch.")
        self.lag = gauge("lag_records", "Records in the log that the query has not read.")
        self.state_rows = gauge("state_rows", "Rows kept in state.")

    def observe(self, summary: Summary) -> None:
        name = summary.query
        self.rows.labels(name).inc(summary.input_rows)
        self.batches.labels(name).inc()
        self.late.labels(name).inc(summary.late_rows)
        self.duration_s.labels(name).set(summary.duration_ms / 1000)
        self.rate.labels(name).set(summary.rows_per_s)
        self.lag.labels(name).set(summary.lag_records)
        self.state_rows.labels(name).set(summary.state_rows)


@dataclass(frozen=True, slots=True)
class Summary:
    """One batch in figures."""

    query: str
    batch: int
    at: str
    input_rows: int
    rows_per_s: float
    duration_ms: int
    lag_records: int
    late_rows: int
    state_rows: int
    watermark: str | None
    end_offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


def summarize(name: str, progress: Mapping[str, Any]) -> Summary:
    """The figures of Spark's own progress document (`StreamingQueryProgress`)."""
    end: dict[str, dict[str, int]] = {}
    lag = 0
    for source in progress.get("sources", []):
        reached, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        end.update(reached)
        for topic, partitions in latest.items():
            for index, offset in partitions.items():
                lag += max(0, offset - reached.get(topic, {}).get(index, 0))
    operators = progress.get("stateOperators", [])
    return Summary(
        query=name,
        batch=int(progress["batchId"]),
        at=str(progress["timestamp"]),
        input_rows=int(progress.get("numInputRows", 0)),
        rows_per_s=float(progress.get("processedRowsPerSecond") or 0.0),
        duration_ms=int(progress.get("durationMs", {}).get("triggerExecution", 0)),
        lag_records=lag,
        late_rows=sum(int(item.get("numRowsDroppedByWatermark", 0)) for item in operators),
        state_rows=sum(int(item.get("numRowsTotal", 0)) for item in operators),
        watermark=progress.get("eventTime", {}).get("watermark"),
        end_offsets=end,
    )


def _offsets(value: Any) -> dict[str, dict[str, int]]:
    """Spark gives offsets as a document or as its text, by the version and the engine."""
    if value is None or value == "null":
        return {}
    shaped = json.loads(value) if isinstance(value, str) else value
    return {topic: {p: int(o) for p, o in rows.items()} for topic, rows in shaped.items()}


class _State:
    """What is known of one query; it runs until it has ended."""

    def __init__(self) -> None:
        self.facts: dict[str, Any] = {"state": "running", "failure": None}


class _Groups:
    """The consumer groups of the queries. Spark tells of progress from a thread of its own, the
    supervisor from another, and a connection is one thread's: so one at a time."""

    def __init__(self, cluster: ClusterSettings) -> None:
        self._cluster = Cluster(cluster)
        self._lock = threading.Lock()
        self._groups: dict[str, GroupOffsets] = {}
        self._is_closed = False

    def commit(self, query: str, offsets: Mapping[Partition, int], note: str) -> None:
        with self._lock:
            if self._is_closed:
                return
            if query not in self._groups:
                self._groups[query] = GroupOffsets(self._cluster, group_of(query))
            self._groups[query].commit(offsets, note)

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._cluster.close()


class ProgressBook(StreamingQueryListener):
    """Keeps the books of the queries that were announced to it; of others it knows nothing."""

    def __init__(self, places: Places, cluster: ClusterSettings, metrics: Metrics) -> None:
        self._places = places
        self._metrics = metrics
        self._states: dict[str, _State] = {}
        self._lock = threading.Lock()
        self._groups = _Groups(replace(cluster, deadline_s=_COMMIT_DEADLINE_S))

    def close(self) -> None:
        """Progress that is told from now on is kept, and no longer shown as a group's."""
        self._groups.close()

    def announce(self, name: str) -> None:
        """A query of this name is about to start."""
        with self._lock:
            state = self._states[name] = _State()
            self._tell(name, state)

    def restarting(self, name: str, failure: str) -> None:
        """A query has failed and will be started again; `announce` says when."""
        with self._lock:
            state = self._states[name]
            state.facts |= {"state": "restarting", "failure": failure}
            self._tell(name, state)
        self._metrics.failures.labels(name).inc()

    def end(self, name: str, last: str | None, failure: str | None) -> None:
        """A query has ended; `last` is its last progress, which Spark may not have told yet."""
        if last is not None:
            self.record(summarize(name, json.loads(last)))
        with self._lock:
            state = self._states[name]
            state.facts |= {"state": "failed" if failure else "stopped", "failure": failure}
            self._tell(name, state)
        if failure is not None:
            self._metrics.failures.labels(name).inc()

    def _tell(self, name: str, state: _State) -> None:
        write_status(self._places.status(name), {"query": name, **state.facts})

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """`announce` says it before."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing new: the last status stands."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name = event.progress.name
        if name in self._states:
            self.record(summarize(name, json.loads(event.progress.json)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """`end` says it, with the reason."""

    def record(self, summary: Summary) -> None:
        """Status, feed, metrics, group: in this order, the one that can fail last."""
        name = summary.query
        with self._lock:
            state = self._states[name]
            # A trigger without data repeats the number of the batch before; `end` may too.
            if (summary.batch, summary.at) == (state.facts.get("batch"), state.facts.get("at")):
                return
            state.facts |= summary.as_json()
            self._tell(name, state)
            append_feed(self._places.feed(name), state.facts)
        self._metrics.observe(summary)
        try:
            self._groups.commit(name, from_spark(summary.end_offsets), f"batch {summary.batch}")
        except PipelineError as error:
            log.warning("query %s: its lag is not shown: %s", name, error)


def group_of(name: str) -> str:
    return GROUP_PREFIX + name


def write_status(path: Path, document: Mapping[str, Any]) -> None:
    """Whole or not at all; not synced, because the next batch writes it anew."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    content = {**document, "pid": os.getpid(), "written_ms": int(time.time() * 1000)}
    aside.write_text(json.dumps(content))
    aside.replace(path)


def append_feed(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > FEED_SIZE_BYTES_MAX:
        path.replace(path.with_suffix(".jsonl.1"))
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")
