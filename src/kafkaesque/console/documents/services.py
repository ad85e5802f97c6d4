"""Documents about services: gateways, chat, tasks, Spark, trends, coordination, processes.

They are built from each service's metrics page, topics and groups. The document of a service that is
not running is empty, and its page says how to start it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from kafkaesque.console.documents.groups import group_row
from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.documents.topics import topic_row
from kafkaesque.console.rules.exposition import MetricSample
from kafkaesque.console.rules.view import Document
from kafkaesque.console.services.coordination import CoordinationReadFailed
from kafkaesque.console.services.pipeline import read_queries
from kafkaesque.console.services.scraper import MetricsPage
from kafkaesque.events.tasks import dead_topic

GATEWAY_NODES: Final = "/gateways"
PIPELINE_GROUPS: Final = "pipeline."
TRENDS_SHOWN: Final = 20
TRENDS_DRAWN: Final = 5
SAMPLES_SHOWN: Final = 60
_NOISE: Final = ("python_", "process_", "_created", "_bucket")
_TASK_TOPICS: Final = ("tasks.",)
_DEAD_TOPIC: Final = re.compile(r"tasks\.([a-z0-9][a-z0-9_-]*)\.dead")
_CHAT_TOPICS: Final = ("gw.", "chat.")


def metric_rows(page: MetricsPage, prefix: str) -> list[Document]:
    """The metrics of a page under readable names, without `prefix`; counters have a rate."""
    rows: list[Document] = []
    for name in page.now.names():
        if not name.startswith(prefix) or any(noise in name for noise in _NOISE):
            continue
        for sample in page.now.all(name):
            rows.append({
                "name": name.removeprefix(prefix).removesuffix("_total").replace("_", " "),
                "labels": _labels(sample),
                "value": sample.value,
                "rate": page.rate(name, **sample.labels) if name.endswith("_total") else None,
            })  # fmt: skip
            if len(rows) == SAMPLES_SHOWN:
                return rows
    return rows


def _labels(sample: MetricSample) -> str:
    return ", ".join(f"{name} {value}" for name, value in sample.labels.items())


def _pages(state: ConsoleState, kind: str, prefix: str) -> list[Document]:
    return [
        {
            "url": page.url,
            "is_up": page.is_up,
            "error": page.error,
            "figures": metric_rows(page, prefix),
        }
        for page in state.scraper.of_kind(kind)
    ]


async def gateways(state: ConsoleState) -> Document:
    """Running gateways: their nodes in coordination, and their metrics."""
    error, nodes = None, {}
    if state.coordination.is_present:
        try:
            nodes = await state.coordination.children_data(GATEWAY_NODES)
        except CoordinationReadFailed as failure:
            error = str(failure)
    pages = [page for page in state.scraper.of_kind("gateway") if page.is_up]

    def total(name: str) -> float:
        return sum(page.now.total(f"kafkaesque_gateway_{name}") for page in pages)

    return {
        "figures": {
            "gateways": len(pages),
            "connections": total("connections"),
            "resumes": total("resumes_total"),
            "resumes_refused": total("resumes_refused_total"),
            "taken_over": total("handed_over_total"),
            "drained": total("drained_total"),
            "commands_rate": sum(page.rate("kafkaesque_gateway_commands_total") for page in pages),
            "events_rate": sum(page.rate("kafkaesque_gateway_events_total") for page in pages),
        },
        "registered": [{"id": name, "facts": _facts(data)} for name, data in nodes.items()],
        "coordination_error": error,
        "pages": _pages(state, "gateway", "kafkaesque_gateway_"),
        "topics": _topic_rows(state, ("gw.",)),
    }


def _facts(data: bytes) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError:
        return {"data": data.decode(errors="replace")} if data else {}
    return document if isinstance(document, dict) else {"data": document}


def _topic_rows(state: ConsoleState, prefixes: tuple[str, ...]) -> list[Document]:
    found = [
        topic for topic in state.sampler.view.topics.values() if topic.name.startswith(prefixes)
    ]
    return [topic_row(state, topic) for topic in sorted(found, key=lambda topic: topic.name)]


def chat(state: ConsoleState) -> Document:
    view = state.sampler.view
    groups = [group for group in view.groups.values() if group.name.startswith("chat")]
    return {
        "url": state.chat_url,
        "pages": _pages(state, "chat", "kafkaesque_chat_"),
        "topics": _topic_rows(state, _CHAT_TOPICS),
        "groups": [group_row(state, group) for group in sorted(groups, key=lambda g: g.name)],
    }


def tasks(state: ConsoleState) -> Document:
    view = state.sampler.view
    groups = [group for group in view.groups.values() if group.name.startswith("tasks")]
    pages = [page for page in state.scraper.of_kind("tasks") if page.is_up]

    def total(name: str) -> float:
        return sum(page.now.total(f"kafkaesque_tasks_{name}") for page in pages)

    def rate(name: str) -> float:
        return sum(page.rate(f"kafkaesque_tasks_{name}_total") for page in pages)

    return {
        "figures": {
            "done_rate": rate("done"),
            "retried_rate": rate("retried"),
            "dead_rate": rate("dead"),
            "running": total("running"),
            "waiting": total("waiting"),
            "delayed": total("delayed"),
            "timers_pending": total("timers_pending"),
            "timers_fired": total("timers_fired_total"),
        },
        "queues": [
            {"queue": found[1], **topic_row(state, topic)}
            for topic in view.topics.values()
            if (found := _DEAD_TOPIC.fullmatch(topic.name))
        ],
        "pages": _pages(state, "tasks", "kafkaesque_tasks_"),
        "topics": _topic_rows(state, _TASK_TOPICS),
        "groups": [group_row(state, group) for group in sorted(groups, key=lambda g: g.name)],
    }


def find_queue(state: ConsoleState, queue: str) -> None:
    if dead_topic(queue) not in state.sampler.view.topics:
        raise ResourceNotFound(f"queue '{queue}' does not exist")


async def dead_letters(state: ConsoleState, queue: str) -> Document:
    find_queue(state, queue)
    return {"queue": queue, "letters": await state.dead_letters.listed(queue)}


async def pipeline(state: ConsoleState) -> Document:
    queries = await asyncio.to_thread(read_queries, state.pipeline_data)
    groups = state.sampler.view.groups
    for query in queries:
        group = groups.get(f"{PIPELINE_GROUPS}{query['query']}")
        query["lag"] = None if group is None else group.lag
        query["lag_s"] = None if group is None else group.time_lag.seconds
    known = {query["query"] for query in queries}
    others = [
        group_row(state, group)
        for name, group in sorted(groups.items())
        if name.startswith(PIPELINE_GROUPS) and name.removeprefix(PIPELINE_GROUPS) not in known
    ]
    return {
        "directory": str(state.pipeline_data) if state.pipeline_data else None,
        "queries": queries,
        "groups": others,
        "pages": _pages(state, "pipeline", "kafkaesque_pipeline_"),
    }


def trends(state: ConsoleState) -> Document:
    board = state.trends.board
    newest = board.newest(TRENDS_SHOWN)
    drawn = [row["hashtag"] for row in newest["tags"][:TRENDS_DRAWN]]
    return {
        "is_present": state.trends.is_present,
        **newest,
        "over_time": {
            tag: [[at_s, value] for at_s, value in points]
            for tag, points in board.over_time(drawn).items()
        },
    }


async def coordination(state: ConsoleState, query: Mapping[str, str]) -> Document:
    path = query.get("path") or "/"
    document: Document = {"is_present": state.coordination.is_present,
                          "hosts": state.coordination.hosts, "path": path,
                          "error": None, "node": None, "sessions": []}  # fmt: skip
    if not state.coordination.is_present:
        return document
    try:
        document["node"] = await state.coordination.node(path)
        if path == "/":
            document["sessions"] = await state.coordination.sessions()
    except CoordinationReadFailed as error:
        document["error"] = str(error)
    pages = [page for page in state.scraper.of_kind("broker") if page.is_up]
    document["servers"] = [
        {
            "url": page.url,
            "sessions": page.now.value("kafkaesque_coordination_sessions"),
            "watches": page.now.value("kafkaesque_coordination_watches"),
            "connections": page.now.value("kafkaesque_coordination_connections"),
            "nodes": page.now.value("kafkaesque_coordination_nodes"),
            "is_leader": bool(page.now.value("kafkaesque_coordination_is_leader")),
        }
        for page in pages
        if "kafkaesque_coordination_sessions" in page.now
    ]
    return document


def processes(state: ConsoleState) -> Document:
    return {
        "is_present": state.processes.is_present,
        "processes": [
            {"name": item.name, "state": item.state, "pid": item.pid, "restarts": item.restarts,
             "facts": dict(item.facts), "log": item.log}
            for item in state.processes.processes
        ],
    }  # fmt: skip


def present(state: ConsoleState) -> dict[str, bool]:
    """Which pages have content; the others are left out of the menu."""
    topics = state.sampler.view.topics
    kinds = {page.kind for page in state.scraper.pages.values()}
    return {
        "raft": state.sampler.view.quorum is not None,
        "coordination": state.coordination.is_present,
        "gateways": "gateway" in kinds or any(name.startswith("gw.") for name in topics),
        "chat": state.chat_url is not None or "chat.events" in topics,
        "tasks": "tasks" in kinds or any(name.startswith(_TASK_TOPICS) for name in topics),
        "pipeline": state.pipeline_data is not None or "pipeline" in kinds,
        "trends": state.trends.is_present,
        "faults": state.processes.is_present,
    }
