"""The broker's Prometheus metrics, computed from the live objects on each scrape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from kafkaesque.broker.server.end_offsets import EndOffsets, find_end_offsets
from kafkaesque.broker.server.stats import LATENCY_BUCKETS_SECONDS, LatencyHistogram
from kafkaesque.model.ids import TopicPartition, node_of
from kafkaesque.wire.api import ApiKey

if TYPE_CHECKING:
    from kafkaesque.broker.groups.log_format import OffsetValue
    from kafkaesque.broker.raft.ready import Status
    from kafkaesque.broker.replication.flusher import Flusher
    from kafkaesque.broker.replication.replica_set import ReplicaSet
    from kafkaesque.broker.server.context import Context
    from kafkaesque.broker.server.listener import Listener
    from kafkaesque.model.ids import MemberId, PartitionIndex

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ENDINGS: Final = ("commit", "abort", "timeout", "fenced")


class BrokerCollector(Collector):
    """The metrics of one node."""

    def __init__(
        self,
        context: Context,
        listener: Listener,
        flusher: Flusher,
        replicas: ReplicaSet,
        end_offsets: EndOffsets,
    ) -> None:
        """`end_offsets` has the partitions with committed group offsets whose leader has
        answered."""
        self._context = context
        self._listener = listener
        self._flusher = flusher
        self._replicas = replicas
        self._end_offsets = end_offsets

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from self._logs()
        yield from self._cleaning()
        yield from self._groups()
        yield from _transactions(self._context)
        yield from self._raft()
        yield from self._links()
        loop_delay = HistogramMetricFamily(
            "kafkaesque_event_loop_delay_seconds",
            "Delay of timers in the event loop, caused by long-running callbacks.",
        )
        _add(loop_delay, (), self._context.stats.loop_delay)
        yield loop_delay

    def _requests(self) -> Iterator[Metric]:
        latency = HistogramMetricFamily(
            "kafkaesque_request_seconds",
            "Time from a complete request to its answer.",
            labels=["api"],
        )
        received = CounterMetricFamily(
            "kafkaesque_request_bytes", "Bytes of requests.", labels=["api"]
        )
        sent = CounterMetricFamily("kafkaesque_response_bytes", "Bytes of answers.", labels=["api"])
        for key, stats in tuple(self._context.stats.apis.items()):
            name = (ApiKey(key).name.lower(),)
            _add(latency, name, stats.latency)
            received.add_metric(name, stats.received_bytes)
            sent.add_metric(name, stats.sent_bytes)
        yield from (latency, received, sent)
        yield _counter(
            "kafkaesque_protocol_errors",
            "Connections closed because the peer broke the protocol.",
            self._context.stats.protocol_errors_total,
        )
        yield _counter(
            "kafkaesque_records_produced",
            "Records appended for clients.",
            self._context.stats.produced_records_total,
        )

    def _connections(self) -> Iterator[Metric]:
        stats = self._context.stats
        yield _gauge("kafkaesque_connections", "Open connections.", self._listener.connection_count)
        yield _counter(
            "kafkaesque_connections_accepted",
            "Connections accepted.",
            stats.connections_accepted_total,
        )
        yield _counter(
            "kafkaesque_connections_refused",
            "Connections refused, or closed, by a limit.",
            stats.connections_refused_total,
        )
        yield _gauge(
            "kafkaesque_queued_request_bytes",
            "Bytes of requests held in memory.",
            self._listener.queued_bytes,
        )
        yield _gauge(
            "kafkaesque_incomplete_request_bytes",
            "Bytes held for requests that have not arrived completely.",
            self._listener.incomplete_requests.size_bytes,
        )
        yield _gauge(
            "kafkaesque_unsent_response_bytes",
            "Bytes of answers waiting for slow readers.",
            self._listener.unsent_bytes,
        )
        clients = CounterMetricFamily(
            "kafkaesque_clients", "Connections by client software.", labels=["name", "version"]
        )
        for (name, version), count in tuple(stats.clients.items()):
            clients.add_metric((name, version), count)
        yield clients
        yield _gauge(
            "kafkaesque_fetch_sessions",
            "Incremental fetch sessions.",
            len(self._context.fetch_sessions),
        )

    def _logs(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        size = GaugeMetricFamily("kafkaesque_log_size_bytes", "Size of a log.", labels=labels)
        start = GaugeMetricFamily(
            "kafkaesque_log_start_offset", "First offset of a log.", labels=labels
        )
        end = GaugeMetricFamily("kafkaesque_log_end_offset", "End of a log.", labels=labels)
        watermark = GaugeMetricFamily(
            "kafkaesque_high_watermark", "First offset that consumers cannot see.", labels=labels
        )
        for partition in self._context.partitions:
            name = (partition.name.topic, str(partition.name.partition))
            size.add_metric(name, partition.log.size_bytes)
            start.add_metric(name, partition.log_start_offset)
            end.add_metric(name, partition.log_end_offset)
            watermark.add_metric(name, partition.high_watermark)
        yield from (size, start, end, watermark)
        yield _gauge(
            "kafkaesque_partitions", "Partitions on this node.", len(self._context.partitions)
        )
        yield _counter("kafkaesque_log_syncs", "Syncs of logs to disk.", self._flusher.syncs_total)
        yield _counter(
            "kafkaesque_log_refused_writes",
            "Batches of producers that the disk refused (KAFKA_STORAGE_ERROR): full, or failing.",
            self._context.stats.disk_refusals_total,
        )
        shared = self._flusher.sync_journal
        if shared is not None:
            text = "the journal in which many logs are synced"
            yield _counter("kafkaesque_sync_journal_syncs", f"Syncs of {text}.", shared.syncs_total)
            yield _gauge("kafkaesque_sync_journal_bytes", f"Size of {text}.", shared.size_bytes)

    def _cleaning(self) -> Iterator[Metric]:
        ratio = GaugeMetricFamily(
            "kafkaesque_log_dirty_ratio",
            "Uncleaned share of the cleanable part of a compacted log.",
            labels=["topic", "partition"],
        )
        for partition, share in self._context.cleaner.dirty_ratios():
            ratio.add_metric((partition.name.topic, str(partition.name.partition)), share)
        yield ratio
        stats = self._context.cleaner.stats
        yield _counter("kafkaesque_log_cleanings", "Logs cleaned.", stats.cleanings)
        yield _counter("kafkaesque_log_cleaning_failures", "Failed cleanings.", stats.failures)
        yield _counter(
            "kafkaesque_log_compacted_bytes", "Bytes read by the log cleaner.", stats.read_bytes
        )
        yield _counter(
            "kafkaesque_log_compaction_saved_bytes",
            "Bytes by which cleaning made logs shorter.",
            stats.saved_bytes,
        )

    def _groups(self) -> Iterator[Metric]:
        lag = GaugeMetricFamily(
            "kafkaesque_group_lag",
            "Distance from a group's committed offset to the end of the partition. Reported "
            "by the group's coordinator, with the end offset from the partition's leader. Absent "
            "while no leader answers.",
            labels=["group", "topic", "partition"],
        )
        members = 0
        states: dict[str, int] = {}
        for shard in self._context.groups:
            registry = shard.registry
            if registry is None:
                continue
            members += registry.member_count()
            for state, count in registry.groups_by_state().items():
                states[state.value] = states.get(state.value, 0) + count
            for group_id in registry.group_ids():
                for row in self._lag_of(group_id, registry.committed_offsets(group_id)):
                    lag.add_metric(*row)
        groups = GaugeMetricFamily("kafkaesque_groups", "Consumer groups.", labels=["state"])
        for name, count in states.items():
            groups.add_metric((name,), count)
        yield from (groups, lag)
        yield _gauge("kafkaesque_group_members", "Members of all consumer groups.", members)

    def _lag_of(
        self, group_id: str, committed: Mapping[str, Mapping[PartitionIndex, OffsetValue]]
    ) -> Iterator[tuple[Sequence[str], int]]:
        for topic, offsets in committed.items():
            for index, value in offsets.items():
                end_offset = self._end_offsets.get(TopicPartition(topic, index))
                if end_offset is not None:
                    yield (group_id, topic, str(index)), max(0, end_offset - value.offset)

    def _raft(self) -> Iterator[Metric]:
        replicas, journal = self._replicas, self._replicas.raft_journal
        terms = led = 0
        lag: dict[MemberId, int] = {}
        for replica in replicas:
            terms += replica.leadership.term
            if replica.is_leader:
                led += 1
                _note_lag(lag, replica.status())
        yield _gauge("kafkaesque_raft_groups", "Raft groups on this node.", len(replicas))
        yield _gauge("kafkaesque_raft_groups_led", "Raft groups led by this node.", led)
        yield _gauge(
            "kafkaesque_raft_groups_awake",
            "Raft groups that are not quiesced; only these cost CPU time.",
            replicas.awake_count,
        )
        yield _counter(
            "kafkaesque_raft_terms",
            "Terms of all groups on this node, summed: each election adds one.",
            terms,
        )
        follower_lag = GaugeMetricFamily(
            "kafkaesque_follower_lag_entries",
            "Entries of groups led here that a follower does not have on disk, summed.",
            labels=["peer"],
        )
        for member, entries in lag.items():
            follower_lag.add_metric((str(node_of(member)),), entries)
        yield follower_lag
        yield _counter(
            "kafkaesque_raft_journal_bytes", "Bytes saved in the raft journal.", journal.position
        )
        yield _counter(
            "kafkaesque_raft_journal_syncs", "Syncs of the raft journal.", journal.syncs_total
        )

    def _links(self) -> Iterator[Metric]:
        """Counts restart with every link."""
        labels = ["peer"]
        up = GaugeMetricFamily("kafkaesque_link_up", "1 if there is a link.", labels=labels)
        round_trip = GaugeMetricFamily(
            "kafkaesque_link_round_trip_seconds", "Round-trip time of the last ping.", labels=labels
        )
        queued = GaugeMetricFamily(
            "kafkaesque_link_queued_bytes", "Bytes waiting to be sent.", labels=labels
        )
        counts = {
            "sent_bytes": "Bytes sent.",
            "received_bytes": "Bytes received.",
            "sent_frames": "Frames sent. A frame holds all messages of one event loop turn.",
            "sent_pulses": "Pings and pongs sent.",
            "sent_messages": "Raft messages sent.",
            "dropped_messages": "Raft messages dropped because the queue was full.",
        }
        families = {
            name: CounterMetricFamily(f"kafkaesque_link_{name}", text, labels=labels)
            for name, text in counts.items()
        }
        for node_id, status in self._context.cluster.links.status().items():
            peer = (str(node_id),)
            up.add_metric(peer, status.is_up)
            round_trip.add_metric(peer, status.round_trip_seconds)
            queued.add_metric(peer, status.queued_bytes)
            for name, family in families.items():
                family.add_metric(peer, getattr(status, name))
        yield from (up, round_trip, queued, *families.values())


def _transactions(context: Context) -> Iterator[Metric]:
    states: Counter[str] = Counter()
    endings: Counter[str] = Counter(dict.fromkeys(_ENDINGS, 0))
    ending = 0
    started_ms: list[int] = []
    for shard in context.transactions.coordinator:
        ending += shard.ending_count
        registry = shard.registry
        if registry is None:
            continue
        states.update({state.title: n for state, n in registry.counts_by_state().items()})
        endings.update(registry.ended)
        oldest_ms = registry.oldest_started_ms()
        if oldest_ms is not None:
            started_ms.append(oldest_ms)
    ids = GaugeMetricFamily(
        "kafkaesque_transactional_ids", "Transactional ids coordinated here.", labels=["state"]
    )
    for name, count in states.items():
        ids.add_metric((name,), count)
    ended = CounterMetricFamily(
        "kafkaesque_transactions_ended", "Transactions ended here.", labels=["by"]
    )
    for name, count in endings.items():
        ended.add_metric((name,), count)
    yield from (ids, ended)
    yield _gauge(
        "kafkaesque_transactions_ending",
        "Transactions that are decided and whose markers are not all written yet.",
        ending,
    )
    now_ms = context.clock.wall_ms()
    yield _gauge(
        "kafkaesque_transaction_oldest_seconds",
        "Age of the oldest open transaction coordinated here.",
        max((now_ms - begun for begun in started_ms), default=0) / 1000,
    )
    yield _gauge(
        "kafkaesque_transactions_open",
        "Open transactions of partitions led here, counted once per partition.",
        sum(len(one.producers.transactions) for one in context.partitions if one.leads),
    )


async def metrics_text(
    context: Context,
    listener: Listener,
    flusher: Flusher,
    replicas: ReplicaSet,
    *others: Collector,
) -> bytes:
    """Returns all metrics of this node. Asks other brokers for the end offsets of their
    partitions."""
    ends = await find_end_offsets(context, _committed_partitions(context))
    return expose(BrokerCollector(context, listener, flusher, replicas, ends), *others)


def _committed_partitions(context: Context) -> set[TopicPartition]:
    """Returns the partitions with offsets committed by groups that this broker coordinates."""
    return {
        TopicPartition(topic, index)
        for shard in context.groups
        if (registry := shard.registry) is not None
        for group_id in registry.group_ids()
        for topic, offsets in registry.committed_offsets(group_id).items()
        for index in offsets
    }


def _note_lag(lag: dict[MemberId, int], status: Status) -> None:
    for member, peer in status.peers.items():
        lag[member] = lag.get(member, 0) + status.last_index - peer.match_index


def expose(*collectors: Collector) -> bytes:
    """Returns the text exposition of some collectors."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
    return generate_latest(registry)


def _add(family: HistogramMetricFamily, labels: Iterable[str], histogram: LatencyHistogram) -> None:
    totals = list(accumulate(histogram.counts))
    bounds = [str(bound) for bound in LATENCY_BUCKETS_SECONDS] + ["+Inf"]
    family.add_metric(
        list(labels), list(zip(bounds, totals, strict=True)), sum_value=histogram.sum_seconds
    )


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(name, text, value=value)
