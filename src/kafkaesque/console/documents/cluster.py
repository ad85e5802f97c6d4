"""Documents about the cluster: overview, brokers, Raft groups, events and history."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final, TypeVar

from kafkaesque.console.documents.state import ConsoleState
from kafkaesque.console.rules.event_log import LoggedEvent
from kafkaesque.console.rules.health import health_of
from kafkaesque.console.rules.paging import ListPage, paginate, read_page_request
from kafkaesque.console.rules.view import ConsoleBrokerView, Document, PartitionView
from kafkaesque.console.services.scraper import client_rows

T = TypeVar("T")

EVENTS_SHOWN: Final = 200
MARKS_MAX: Final = 100
SERIES_MAX: Final = 20
WINDOW_S_MAX: Final = 21_600
MARKED: Final = frozenset({"broker", "election", "cluster", "fault", "process"})
"""Kinds of events that are marked on charts."""
RAFT_SORTS: Final = {
    "term": lambda row: row["term"],
    "leader": lambda row: row["leader"],
    "lag": lambda row: row["lag"],
}


def overview(state: ConsoleState) -> Document:
    view, history = state.sampler.view, state.sampler.history
    health = health_of(view)
    topics, groups = view.topics.values(), view.groups.values()
    busiest = sorted(topics, key=lambda topic: -(topic.rate or 0.0))[:5]
    lagging = sorted(groups, key=lambda group: (-group.status, -group.lag))[:5]
    brokers = [page for page in state.scraper.of_kind("broker") if page.is_up]
    return {
        "health": {
            "level": health.level,
            "sentence": health.sentence,
            "findings": [
                {"level": item.level, "text": item.text, "link": item.link}
                for item in health.findings
            ],
        },
        "cluster_id": view.cluster_id,
        "controller": view.controller,
        "term": view.quorum.epoch if view.quorum else None,
        "brokers": {
            "up": sum(1 for broker in view.brokers.values() if broker.is_up),
            "total": len(view.brokers),
        },
        "topics": len(view.topics),
        "partitions": view.partition_count,
        "groups": len(view.groups),
        "records_in": history.latest("records_in"),
        "bytes_in": history.latest("bytes_in"),
        "bytes_out": history.latest("bytes_out"),
        "produce_p99_ms": history.latest("produce_p99_ms"),
        "fetch_p99_ms": history.latest("fetch_p99_ms"),
        "connections": history.latest("connections"),
        "lag": sum(group.lag for group in groups),
        "size_bytes": sum(topic.size_bytes or 0 for topic in topics),
        "under_replicated": sum(topic.under_replicated for topic in topics),
        "leaderless": sum(topic.leaderless for topic in topics),
        "busiest": [
            {"topic": topic.name, "rate": topic.rate, "size_bytes": topic.size_bytes}
            for topic in busiest
        ],
        "lagging": [
            {"group": group.name, "lag": group.lag, "status": group.status.label,
             "level": group.status.level, "lag_s": group.time_lag.seconds}
            for group in lagging
        ],
        "clients": client_rows(brokers)[:8],
        "events": [event_row(event) for event in state.sampler.events.newest(8)],
        "sampled_s": view.sampled_s,
        "look_ms": state.sampler.sample_seconds * 1000,
    }  # fmt: skip


def event_row(event: LoggedEvent) -> Document:
    change = event.change
    return {"number": event.number, "at_s": event.at_s, "kind": change.kind,
            "level": change.level, "text": change.text, "subject": change.subject,
            "link": _link(change.subject)}  # fmt: skip


def _link(subject: str) -> str | None:
    kind, _, name = subject.partition("/")
    return {"broker": "/brokers", "topic": f"/topics/{name}", "group": f"/groups/{name}",
            "controller": "/raft", "process": "/faults"}.get(kind)  # fmt: skip


def events(state: ConsoleState, query: Mapping[str, str]) -> Document:
    kind = query.get("kind", "")
    kinds = frozenset({kind}) if kind else frozenset()
    found = state.sampler.events.newest(EVENTS_SHOWN, kinds)
    return {"kind": kind, "total": len(state.sampler.events),
            "events": [event_row(event) for event in found]}  # fmt: skip


def brokers(state: ConsoleState) -> Document:
    view = state.sampler.view
    pages = [
        {
            "url": page.url,
            "error": page.error,
            "connections": page.now.value("kafkaesque_connections"),
            "records_in": page.rate("kafkaesque_records_produced_total"),
            "bytes_in": page.rate("kafkaesque_request_bytes_total", api="produce"),
            "bytes_out": page.rate("kafkaesque_response_bytes_total", api="fetch"),
            "raft_groups": page.now.value("kafkaesque_raft_groups"),
            "raft_led": page.now.value("kafkaesque_raft_groups_led"),
            "syncs": page.rate("kafkaesque_log_syncs_total"),
            "memory_bytes": page.now.value("process_resident_memory_bytes"),
        }
        for page in state.scraper.of_kind("broker", "unknown")
    ]
    up = [page for page in state.scraper.of_kind("broker") if page.is_up]
    return {
        "controller": view.controller,
        "brokers": [broker_row(broker, view.controller) for broker in view.brokers.values()],
        "metrics": pages,
        "clients": client_rows(up),
    }


def broker_row(broker: ConsoleBrokerView, controller: int) -> Document:
    return {
        "id": broker.id,
        "address": broker.address,
        "rack": broker.rack,
        "is_up": broker.is_up,
        "is_controller": broker.id == controller,
        "leads": broker.leads,
        "replicas": broker.replicas,
        "behind": broker.out_of_sync,
        "size_bytes": broker.size_bytes,
        "disk_total_bytes": broker.disk_total_bytes,
        "disk_free_bytes": broker.disk_free_bytes,
    }


def raft(state: ConsoleState, query: Mapping[str, str]) -> Document:
    """The controller quorum, and the Raft group of each partition as far as clients can see it."""
    view = state.sampler.view
    quorum = view.quorum
    rows = [
        partition_row(topic.name, partition)
        for topic in view.topics.values()
        for partition in topic.partitions
    ]
    request = read_page_request(query)
    page = paginate(rows, request, lambda row: row["group"], RAFT_SORTS)
    return {
        "controller": None if quorum is None else {
            "leader": quorum.leader,
            "term": quorum.epoch,
            "high_watermark": quorum.high_watermark,
            "members": [
                {"id": item.id, "role": item.role, "end_offset": item.end_offset,
                 "lag": item.lag, "last_caught_up_ms": item.last_caught_up_ms}
                for item in quorum.members
            ],
        },
        "links": _link_rows(state),
        "elections": [
            event_row(event)
            for event in state.sampler.events.newest(20, frozenset({"election"}))
        ],
        **page_document(page, page.items),
        "q": request.search, "sort": request.sort,
    }  # fmt: skip


def _link_rows(state: ConsoleState) -> list[Document]:
    rows: list[Document] = []
    for page in state.scraper.of_kind("broker"):
        for sample in page.now.all("kafkaesque_link_up"):
            peer = sample.labels.get("peer", "")
            trip_s = page.now.value("kafkaesque_link_round_trip_seconds", peer=peer)
            rows.append({
                "from": page.url.removeprefix("http://").removesuffix("/metrics"),
                "peer": peer,
                "is_up": bool(sample.value),
                "round_trip_ms": None if trip_s is None else trip_s * 1000,
                "behind": page.now.value("kafkaesque_follower_lag_entries", peer=peer),
            })  # fmt: skip
    return rows


def partition_row(topic: str, partition: PartitionView) -> Document:
    return {
        "group": f"{topic}-{partition.index}",
        "topic": topic,
        "partition": partition.index,
        "leader": partition.leader,
        "term": partition.epoch,
        "replicas": list(partition.replicas),
        "isr": list(partition.isr),
        "end": partition.end,
        "followers": [
            {"id": number, "lag": lag} for number, lag in sorted(partition.follower_lag.items())
        ],
        "lag": max(partition.follower_lag.values(), default=0),
    }


def page_document(page: ListPage[T], rows: list[Document]) -> Document:
    """The fields that every paginated document has; `rows` describe the items of `page`."""
    return {
        "items": rows,
        "total": page.total,
        "page": page.number,
        "pages": page.pages,
        "size": page.size,
    }


def history(state: ConsoleState, query: Mapping[str, str]) -> Document:
    """Points of the requested series, and the events to mark on the chart."""
    names = [name for name in query.get("series", "").split(",") if name][:SERIES_MAX]
    window_s = min(_seconds(query.get("window"), 600.0), float(WINDOW_S_MAX))
    now_s = time.time()
    metrics = state.sampler.history
    return {
        "window_s": window_s,
        "series": {
            name: [[point.at_s, point.value] for point in metrics.points(name, window_s, now_s)]
            for name in names
        },
        "marks": marks(state, now_s - window_s),
    }


def marks(state: ConsoleState, since_s: float) -> list[Document]:
    found = state.sampler.events.since(since_s, MARKED)[-MARKS_MAX:]
    return [
        {"at_s": event.at_s, "level": event.change.level, "text": event.change.text}
        for event in found
    ]


def _seconds(text: str | None, default: float) -> float:
    return float(text) if text and text.isdecimal() and len(text) < 7 else default
