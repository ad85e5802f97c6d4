"""The pages: a path, a template, and the document that it draws."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from starlette.routing import compile_path

from kafkaesque.console.documents import cluster, groups, services, topics
from kafkaesque.console.documents.state import ConsoleState
from kafkaesque.console.rules.health import health_of
from kafkaesque.console.rules.view import Document
from kafkaesque.console.web.rendering import path_quote

Query = Mapping[str, str]
DocumentBuilder = Callable[[ConsoleState, Mapping[str, str], Query], Awaitable[Document]]


@dataclass(frozen=True, slots=True)
class ConsolePage:
    pattern: str
    template: str
    title: str
    document: DocumentBuilder
    menu: str = ""
    """The entry of the menu that it belongs to."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A page at an address, as somebody sees it."""

    page: ConsolePage
    path: str
    parameters: Mapping[str, str]
    query: Query
    is_operator: bool


MENU: Final = (
    ("overview", "/", "Overview", ""),
    ("topics", "/topics", "Topics", ""),
    ("groups", "/groups", "Groups", ""),
    ("brokers", "/brokers", "Brokers", ""),
    ("raft", "/raft", "Raft", "raft"),
    ("coordination", "/coordination", "Coordination", "coordination"),
    ("gateways", "/gateways", "Gateways", "gateways"),
    ("chat", "/chat", "Chat", "chat"),
    ("tasks", "/tasks", "Tasks", "tasks"),
    ("pipeline", "/pipeline", "Spark", "pipeline"),
    ("trends", "/trends", "Trends", "trends"),
    ("events", "/events", "Events", ""),
    ("faults", "/faults", "Faults", "faults"),
)
"""Name, address, words, and what must be present for it to be shown."""


def _plain(make: Callable[[ConsoleState], Document]) -> DocumentBuilder:
    async def document(
        state: ConsoleState, _parameters: Mapping[str, str], _query: Query
    ) -> Document:
        return make(state)

    return document


def _listing(make: Callable[[ConsoleState, Query], Document]) -> DocumentBuilder:
    async def document(
        state: ConsoleState, _parameters: Mapping[str, str], query: Query
    ) -> Document:
        return make(state, query)

    return document


async def _topic(state: ConsoleState, parameters: Mapping[str, str], query: Query) -> Document:
    document = topics.topic(state, parameters["name"])
    tab = query.get("tab", "partitions")
    document["tab"] = (
        tab if tab in ("partitions", "messages", "settings", "groups") else "partitions"
    )
    document["settings"] = []
    if document["tab"] == "settings":
        document |= await topics.topic_settings(state, parameters["name"])
    return document


async def _group(state: ConsoleState, parameters: Mapping[str, str], _query: Query) -> Document:
    return await groups.group(state, parameters["name"])


async def _gateways(state: ConsoleState, _parameters: Mapping[str, str], _query: Query) -> Document:
    return await services.gateways(state)


async def _pipeline(state: ConsoleState, _parameters: Mapping[str, str], _query: Query) -> Document:
    return await services.pipeline(state)


async def _dead_letters(
    state: ConsoleState, parameters: Mapping[str, str], _query: Query
) -> Document:
    return await services.dead_letters(state, parameters["name"])


async def _coordination(
    state: ConsoleState, _parameters: Mapping[str, str], query: Query
) -> Document:
    return await services.coordination(state, query)


PAGES: Final = (
    ConsolePage("/", "overview.html", "Overview", _plain(cluster.overview), "overview"),
    ConsolePage("/topics", "topics.html", "Topics", _listing(topics.topics), "topics"),
    ConsolePage("/topics/{name}", "topic.html", "{name}", _topic, "topics"),
    ConsolePage("/groups", "groups.html", "Consumer groups", _listing(groups.groups), "groups"),
    ConsolePage("/groups/{name:path}", "group.html", "{name}", _group, "groups"),
    ConsolePage("/brokers", "brokers.html", "Brokers", _plain(cluster.brokers), "brokers"),
    ConsolePage("/raft", "raft.html", "Raft", _listing(cluster.raft), "raft"),
    ConsolePage(
        "/coordination", "coordination.html", "Coordination", _coordination, "coordination"
    ),
    ConsolePage("/gateways", "gateways.html", "Gateways", _gateways, "gateways"),
    ConsolePage("/chat", "chat.html", "Chat", _plain(services.chat), "chat"),
    ConsolePage("/tasks", "tasks.html", "Tasks", _plain(services.tasks), "tasks"),
    ConsolePage(
        "/tasks/{name}", "dead_letters.html", "Dead letters of {name}", _dead_letters, "tasks"
    ),
    ConsolePage("/pipeline", "pipeline.html", "Spark queries", _pipeline, "pipeline"),
    ConsolePage("/trends", "trends.html", "Trends", _plain(services.trends), "trends"),
    ConsolePage("/events", "events.html", "Events", _listing(cluster.events), "events"),
    ConsolePage("/faults", "faults.html", "Break it", _plain(services.processes), "faults"),
)
_PATTERNS: Final = [(page, *compile_path(page.pattern)[::2]) for page in PAGES]


def find_visit(path: str, query: Query, is_operator: bool) -> Visit | None:
    """The page at `path`, which is not percent-encoded any more."""
    for page, pattern, _ in _PATTERNS:
        found = pattern.match(path)
        if found:
            return Visit(page, path, found.groupdict(), query, is_operator)
    return None


async def context_of(state: ConsoleState, visit: Visit) -> dict[str, Any]:
    """What the template gets."""
    document = await visit.page.document(state, visit.parameters, visit.query)
    return {"d": document, **frame_of(state, visit)}


def frame_of(state: ConsoleState, visit: Visit) -> dict[str, Any]:
    """What stands around every page: menu, health, title."""
    here = services.present(state)
    health = health_of(state.sampler.view)
    return {
        "title": visit.page.title.format(**visit.parameters),
        "menu": [
            {"address": address, "words": words, "is_here": name == visit.page.menu}
            for name, address, words, needs in MENU
            if not needs or here[needs] or name == visit.page.menu
        ],
        "health": health,
        "cluster_id": state.sampler.view.cluster_id,
        "query": dict(visit.query),
        "path": visit.path,
        "name": visit.parameters.get("name", ""),
        "quoted": path_quote(visit.parameters.get("name", "")),
        "is_operator": visit.is_operator,
        "now_s": state.sampler.view.sampled_s,
    }
