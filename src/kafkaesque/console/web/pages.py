"""The pages of the console, its menu, and the context of their templates."""

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
DocumentBuilder = Callable[[ConsoleState, "Visit"], Document | Awaitable[Document]]


@dataclass(frozen=True, slots=True)
class ConsolePage:
    """A page: path pattern, template, title, and the document that the template renders."""

    pattern: str
    template: str
    title: str
    document: DocumentBuilder
    menu: str = ""
    """The menu entry that is highlighted on this page."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page."""

    page: ConsolePage
    path: str
    parameters: Mapping[str, str]
    """Parameters in the path."""
    query: Query
    is_operator: bool

    @property
    def name(self) -> str:
        """The topic, group or queue in the path."""
        return self.parameters.get("name", "")


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
"""Name, path, label, and the key of `services.present` that must be true to show the entry."""


TOPIC_TABS: Final = ("partitions", "messages", "settings", "groups")


async def _topic(state: ConsoleState, visit: Visit) -> Document:
    document = topics.topic(state, visit.name)
    tab = visit.query.get("tab", "")
    document["tab"] = tab if tab in TOPIC_TABS else TOPIC_TABS[0]
    document["settings"] = []
    if document["tab"] == "settings":
        document |= await topics.topic_settings(state, visit.name)
    return document


PAGES: Final = (
    ConsolePage("/", "overview.html", "Overview",
                lambda state, _: cluster.overview(state), "overview"),
    ConsolePage("/topics", "topics.html", "Topics",
                lambda state, visit: topics.topics(state, visit.query), "topics"),
    ConsolePage("/topics/{name}", "topic.html", "{name}", _topic, "topics"),
    ConsolePage("/groups", "groups.html", "Consumer groups",
                lambda state, visit: groups.groups(state, visit.query), "groups"),
    ConsolePage("/groups/{name:path}", "group.html", "{name}",
                lambda state, visit: groups.group(state, visit.name), "groups"),
    ConsolePage("/brokers", "brokers.html", "Brokers",
                lambda state, _: cluster.brokers(state), "brokers"),
    ConsolePage("/raft", "raft.html", "Raft",
                lambda state, visit: cluster.raft(state, visit.query), "raft"),
    ConsolePage("/coordination", "coordination.html", "Coordination",
                lambda state, visit: services.coordination(state, visit.query), "coordination"),
    ConsolePage("/gateways", "gateways.html", "Gateways",
                lambda state, _: services.gateways(state), "gateways"),
    ConsolePage("/chat", "chat.html", "Chat", lambda state, _: services.chat(state), "chat"),
    ConsolePage("/tasks", "tasks.html", "Tasks", lambda state, _: services.tasks(state), "tasks"),
    ConsolePage("/tasks/{name}", "dead_letters.html", "Dead letters of {name}",
                lambda state, visit: services.dead_letters(state, visit.name), "tasks"),
    ConsolePage("/pipeline", "pipeline.html", "Spark queries",
                lambda state, _: services.pipeline(state), "pipeline"),
    ConsolePage("/trends", "trends.html", "Trends",
                lambda state, _: services.trends(state), "trends"),
    ConsolePage("/events", "events.html", "Events",
                lambda state, visit: cluster.events(state, visit.query), "events"),
    ConsolePage("/faults", "faults.html", "Fault injection",
                lambda state, _: services.processes(state), "faults"),
)  # fmt: skip
_PATTERNS: Final = [(page, *compile_path(page.pattern)[::2]) for page in PAGES]


def find_visit(path: str, query: Query, is_operator: bool) -> Visit | None:
    """The page at `path`, which must be percent-decoded; None if there is none."""
    for page, pattern, _ in _PATTERNS:
        found = pattern.match(path)
        if found:
            return Visit(page, path, found.groupdict(), query, is_operator)
    return None


async def context_of(state: ConsoleState, visit: Visit) -> dict[str, Any]:
    """The context of the page's template: its document as `d`, and the layout's variables."""
    document = visit.page.document(state, visit)
    if isinstance(document, Awaitable):
        document = await document
    return {"d": document, **layout_context(state, visit)}


def layout_context(state: ConsoleState, visit: Visit) -> dict[str, Any]:
    """The variables of the layout that all pages share: menu, health, title."""
    present = services.present(state)
    health = health_of(state.sampler.view)
    return {
        "title": visit.page.title.format(**visit.parameters),
        "menu": [
            {"address": address, "label": label, "is_here": name == visit.page.menu}
            for name, address, label, needs in MENU
            if not needs or present[needs] or name == visit.page.menu
        ],
        "health": health,
        "cluster_id": state.sampler.view.cluster_id,
        "query": dict(visit.query),
        "path": visit.path,
        "name": visit.name,
        "quoted": path_quote(visit.name),
        "is_operator": visit.is_operator,
        "now_s": state.sampler.view.sampled_s,
    }
