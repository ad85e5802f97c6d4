"""Publishes the progress of running queries: status file, feed, metrics and a consumer group.

Spark calls the listener after each batch. The batch's end offsets are committed to a consumer group,
so that every Kafka tool shows the lag of a Spark query. A failure to publish is logged and never
stops the query.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
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
from kafkaesque.pipeline.kafka.cluster import ClusterClient, ClusterSettings
from kafkaesque.pipeline.kafka.groups import GroupOffsets
from kafkaesque.pipeline.operate.status import append_feed, write_status
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.rules.offsets import Partition, from_spark

log = logging.getLogger(__name__)

GROUP_PREFIX = "pipeline."
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

        self.rows = counter("input_rows", "Records read.")
        self.batches = counter("batches", "Batches finished.")
        self.late = counter("late_rows", "Rows dropped because they were later than the watermark.")
        self.failures = counter("failures", "Queries that ended with an error.")
        self.duration_s = gauge("batch_duration_seconds", "Duration of the last batch.")
        self.rate = gauge("processed_rows_per_second", "Rate of the last batch.")
        self.lag = gauge("lag_records", "Records in the log that the query has not read yet.")
        self.state_rows = gauge("state_rows", "Rows kept in state.")

    def observe(self, summary: BatchSummary) -> None:
        name = summary.query
        self.rows.labels(name).inc(summary.input_rows)
        self.batches.labels(name).inc()
        self.late.labels(name).inc(summary.late_rows)
        self.duration_s.labels(name).set(summary.duration_ms / 1000)
        self.rate.labels(name).set(summary.rows_per_s)
        self.lag.labels(name).set(summary.lag_records)
        self.state_rows.labels(name).set(summary.state_rows)


@dataclass(frozen=True, slots=True)
class BatchSummary:
    """The figures of one batch."""

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


def summarize(name: str, progress: Mapping[str, Any]) -> BatchSummary:
    """Extracts the figures from Spark's progress document (`StreamingQueryProgress`)."""
    end: dict[str, dict[str, int]] = {}
    lag = 0
    for source in progress.get("sources", []):
        reached, latest = _offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))
        end.update(reached)
        for topic, partitions in latest.items():
            for index, offset in partitions.items():
                lag += max(0, offset - reached.get(topic, {}).get(index, 0))
    operators = progress.get("stateOperators", [])
    return BatchSummary(
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
    """Spark reports offsets as an object or as JSON text, depending on version and engine."""
    if value is None or value == "null":
        return {}
    shaped = json.loads(value) if isinstance(value, str) else value
    return {topic: {p: int(o) for p, o in rows.items()} for topic, rows in shaped.items()}


class _Groups:
    """The consumer groups of the queries.

    Spark's listener and the supervisor commit from different threads, and a connection belongs to
    one thread at a time, hence the lock.
    """

    def __init__(self, cluster: ClusterSettings) -> None:
        self._cluster = ClusterClient(cluster)
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


class ProgressListener(StreamingQueryListener):
    """Publishes the progress of the queries announced to it and ignores all others."""

    def __init__(self, data: PipelineDirectory, cluster: ClusterSettings, metrics: Metrics) -> None:
        self._data = data
        self._metrics = metrics
        self._statuses: dict[str, dict[str, Any]] = {}
        self._lock = threading.Lock()
        self._groups = _Groups(replace(cluster, deadline_s=_COMMIT_DEADLINE_S))

    def close(self) -> None:
        """Later progress still goes to status and feed, but is not committed to the group."""
        self._groups.close()

    def announce(self, name: str) -> None:
        """Registers a query that is about to start."""
        with self._lock:
            self._statuses[name] = {"state": "running", "failure": None}
            self._write_status(name)

    def restarting(self, name: str, failure: str) -> None:
        """Records a failure of a query that will be restarted; `announce` follows when it is."""
        with self._lock:
            self._statuses[name] |= {"state": "restarting", "failure": failure}
            self._write_status(name)
        self._metrics.failures.labels(name).inc()

    def end(self, name: str, last: str | None, failure: str | None) -> None:
        """Records the end of a query. `last` is its last progress, which Spark may not have
        delivered to the listener yet."""
        if last is not None:
            self.record(summarize(name, json.loads(last)))
        with self._lock:
            state = "failed" if failure else "stopped"
            self._statuses[name] |= {"state": state, "failure": failure}
            self._write_status(name)
        if failure is not None:
            self._metrics.failures.labels(name).inc()

    def _write_status(self, name: str) -> None:
        write_status(self._data.status(name), {"query": name, **self._statuses[name]})

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Does nothing: `announce` has recorded the start."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Does nothing: the last status is still valid."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        name = event.progress.name
        if name in self._statuses:
            self.record(summarize(name, json.loads(event.progress.json)))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Does nothing: `end` records it with the reason."""

    def record(self, summary: BatchSummary) -> None:
        """Publishes a batch: status, feed, metrics, then the group, which is the one that can fail."""
        name = summary.query
        with self._lock:
            status = self._statuses[name]
            # A trigger without data repeats the last batch number, and so may `end`.
            if (summary.batch, summary.at) == (status.get("batch"), status.get("at")):
                return
            status |= summary.as_json()
            self._write_status(name)
            append_feed(self._data.feed(name), status)
        self._metrics.observe(summary)
        try:
            self._groups.commit(name, from_spark(summary.end_offsets), f"batch {summary.batch}")
        except PipelineError as error:
            log.warning(
                "query %s: offsets were not committed to its consumer group: %s", name, error
            )


def group_of(name: str) -> str:
    return GROUP_PREFIX + name
