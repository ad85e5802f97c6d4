"""Documents about topics: the list, one topic, and its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkaesque.console.cluster.queries import describe_topic_settings
from kafkaesque.console.documents.cluster import page_document, partition_row
from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.rules.paging import paginate, read_page_request
from kafkaesque.console.rules.view import Document, TopicView

GROUPS_SHOWN: Final = 3
SPARK_WINDOW_S: Final = 120
SORTS: Final[Mapping[str, Callable[[TopicView], Any]]] = {
    "name": lambda topic: topic.name,
    "partitions": lambda topic: len(topic.partitions),
    "rate": lambda topic: topic.rate,
    "records": lambda topic: topic.records,
    "size": lambda topic: topic.size_bytes,
    "retention": lambda topic: topic.retention_ms,
    "lag": lambda topic: max(topic.groups.values()) if topic.groups else None,
}


def topics(state: ConsoleState, query: Mapping[str, str]) -> Document:
    """One page of topics. `show` is unhealthy, internal or all; by default, all but internal ones."""
    view = state.sampler.view
    show = query.get("show", "")
    found = [topic for topic in view.topics.values() if _is_shown(topic, show)]
    request = read_page_request(query)
    page = paginate(found, request, lambda topic: topic.name, SORTS)
    return {
        **page_document(page, [topic_row(state, topic) for topic in page.items]),
        "all": len(view.topics),
        "internal": sum(1 for topic in view.topics.values() if is_internal(topic)),
        "show": show, "q": request.search, "sort": request.sort,
    }  # fmt: skip


def is_internal(topic: TopicView) -> bool:
    return topic.is_internal or topic.name.startswith("__")


def _is_shown(topic: TopicView, show: str) -> bool:
    if show == "unhealthy":
        return bool(topic.leaderless or topic.under_replicated)
    if show == "internal":
        return is_internal(topic)
    return show == "all" or not is_internal(topic)


def topic_row(state: ConsoleState, topic: TopicView) -> Document:
    history = state.sampler.history
    points = history.points(f"topic/{topic.name}/rate", SPARK_WINDOW_S, time.time())
    groups = sorted(topic.groups.items(), key=lambda item: (-item[1], item[0]))
    return {
        "name": topic.name,
        "is_internal": is_internal(topic),
        "partitions": len(topic.partitions),
        "replicas": max((len(item.replicas) for item in topic.partitions), default=0),
        "rate": topic.rate,
        "records": topic.records,
        "size_bytes": topic.size_bytes,
        "retention_ms": topic.retention_ms,
        "retention_bytes": topic.retention_bytes,
        "retention_left_ms": topic.retention_left_ms(time.time() * 1000),
        "cleanup": topic.cleanup,
        "leaderless": topic.leaderless,
        "under_replicated": topic.under_replicated,
        "groups": [{"group": name, "lag": lag} for name, lag in groups[:GROUPS_SHOWN]],
        "group_count": len(groups),
        "spark": [round(point.value, 1) for point in points][-60:],
    }


def find_topic(state: ConsoleState, name: str) -> TopicView:
    topic = state.sampler.view.topics.get(name)
    if topic is None:
        raise ResourceNotFound(f"topic '{name}' does not exist")
    return topic


def topic(state: ConsoleState, name: str) -> Document:
    found = find_topic(state, name)
    view = state.sampler.view
    most = max((item.records or 0 for item in found.partitions), default=0)
    groups = [view.groups[group] for group in sorted(found.groups) if group in view.groups]
    return {
        **topic_row(state, found),
        "id": found.id,
        "skew": found.skew,
        "partition_rows": [
            {
                **partition_row(found.name, item),
                "start": item.start,
                "records": item.records,
                "size_bytes": item.size_bytes,
                "share": (item.records or 0) / most if most else 0.0,
                "is_leaderless": item.leader < 0,
                "is_under_replicated": item.is_under_replicated,
            }
            for item in found.partitions
        ],
        "leaders": _leaders(found),
        "group_rows": [
            {"group": group.name, "lag": found.groups[group.name], "status": group.status.label,
             "level": group.status.level}
            for group in groups
        ],
    }  # fmt: skip


def _leaders(topic: TopicView) -> list[Document]:
    """The number of partitions that each broker leads."""
    counts: dict[int, int] = {}
    for partition in topic.partitions:
        counts[partition.leader] = counts.get(partition.leader, 0) + 1
    return [{"broker": broker, "leads": count} for broker, count in sorted(counts.items())]


async def topic_settings(state: ConsoleState, name: str) -> Document:
    find_topic(state, name)
    return {"topic": name, "settings": await describe_topic_settings(state.links, name)}
