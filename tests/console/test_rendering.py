"""Every page rendered from a made-up state: an empty one, and one with some of everything."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.rules.event_log import ClusterChange
from kafkaesque.console.rules.exposition import read_exposition
from kafkaesque.console.rules.lag import GroupStatus, TimeLag
from kafkaesque.console.rules.paging import PAGE_SIZE, PAGE_SIZE_MAX
from kafkaesque.console.rules.view import (
    ConsoleBrokerView,
    ConsoleClusterView,
    GroupOffset,
    GroupView,
    PartitionView,
    QuorumMember,
    QuorumView,
    TopicView,
)
from kafkaesque.console.services.process_control import UpProcess
from kafkaesque.console.services.scraper import MetricsPage
from kafkaesque.console.web.app import build_state
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.pages import PAGES, context_of, find_visit
from kafkaesque.console.web.rendering import TemplateRenderer

HOSTILE = "<script>alert(1)</script>"
LARGE = 10_000
NAMES = {"/topics/{name}": "orders", "/groups/{name:path}": HOSTILE, "/tasks/{name}": "shop"}


def state() -> ConsoleState:
    return build_state(ConsoleConfig("127.0.0.1:1", chat_url="http://127.0.0.1:7001/"))


def fill(state: ConsoleState) -> None:
    """A cluster of two brokers, one of them down, and a group whose name is markup."""
    now = time.time()
    view = ConsoleClusterView("cluster", 0, sampled_s=now)
    view.brokers = {
        0: ConsoleBrokerView(0, "localhost", 9092, disk_total_bytes=100, disk_free_bytes=5),
        1: ConsoleBrokerView(1, "localhost", 9093, is_up=False),
    }
    partitions = [
        PartitionView(n, n % 2 - 1, 4, (0, 1), (0,), start=0, end=100 * n, size_bytes=n,
                      follower_lag={1: 3})
        for n in range(30)
    ]  # fmt: skip
    view.topics = {"orders": TopicView("orders", "id", False, partitions, 12.5, 604_800_000)}
    offset = GroupOffset("orders", 3, 10, 300, GroupStatus.STOPPED, TimeLag(90.0, False))
    group = GroupView(HOSTILE, "Empty", "classic", "consumer", 0, 0, [offset], GroupStatus.STOPPED)
    view.groups = {HOSTILE: group}
    view.topics["orders"].groups = {HOSTILE: 290}
    member = QuorumMember(0, "leader", 10, 0, -1)
    view.quorum = QuorumView(0, 7, 10, [member])
    state.sampler.view = view
    state.sampler.history.add(now, {"records_in": 3.0, "topic/orders/rate": 12.5})
    state.sampler.events.add(
        now, [ClusterChange("group", "info", f"group {HOSTILE} appeared", f"group/{HOSTILE}")]
    )
    for number, text in enumerate((
        'kafkaesque_raft_groups 3\nkafkaesque_link_up{peer="1"} 1\n'
        f'kafkaesque_clients_total{{name="{HOSTILE}",version="1"}} 2\n'
        "kafkaesque_coordination_sessions 1\n",
        "kafkaesque_gateway_connections 7\nkafkaesque_gateway_resumes_total 3\n",
        'kafkaesque_tasks_done_total{app="shop",task="mail"} 9\nkafkaesque_tasks_timers_pending 4\n',
        "kafkaesque_chat_sent_total 4\n",
        'kafkaesque_pipeline_lag_records{query="posts"} 4\n',
    )):  # fmt: skip
        url = f"http://127.0.0.1:{number}/metrics"
        kinds = ("broker", "gateway", "tasks", "chat", "pipeline")
        state.scraper.pages[url] = MetricsPage(url, kinds[number], now, read_exposition(text))
    state.processes.processes = [UpProcess("broker-0", "running", 12, 1, {"http": "127.0.0.1:1"})]
    state.trends.board.add({"window_start_ms": 1000, "hashtag": HOSTILE, "posts": 3})


async def render(
    state: ConsoleState, path: str, is_operator: bool, query: Mapping[str, str] | None = None
) -> tuple[str, dict[str, str]]:
    visit = find_visit(path, query or {}, is_operator)
    assert visit is not None
    rendering = TemplateRenderer()
    try:
        context = await context_of(state, visit)
        return (
            rendering.page(visit.page.template, context),
            rendering.parts(visit.page.template, context),
        )
    finally:
        await state.coordination.close()
        state.scanner.close()


def path_of(pattern: str) -> str:
    name = NAMES.get(pattern, "")
    return pattern.split("{", 1)[0] + name if name else pattern


PATHS = [path_of(page.pattern) for page in PAGES if "tasks/" not in page.pattern]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prepare", [fill, None])
def test_every_page_renders_and_escapes(
    path: str, prepare: Callable[[ConsoleState], None] | None
) -> None:
    async def main() -> tuple[str, dict[str, str]]:
        made = state()
        if prepare is not None:
            prepare(made)
        return await render(made, path, is_operator=True)

    is_detail = path.startswith(("/topics/", "/groups/"))
    if prepare is None and is_detail:
        with pytest.raises(ResourceNotFound):
            asyncio.run(main())
        return
    html, parts = asyncio.run(main())
    assert HOSTILE not in html
    assert " style=" not in html
    assert "<script>" not in html
    for name, part in parts.items():
        assert f'id="{name}"' in html
        assert part.strip() == "" or part.strip()[:60] in html


def test_hostile_group_name_is_shown_as_text() -> None:
    async def main() -> Any:
        made = state()
        fill(made)
        return await render(made, "/groups", is_operator=False)

    html, _ = asyncio.run(main())
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html
    assert "%3Cscript%3E" in html


@functools.cache
def large_view() -> ConsoleClusterView:
    """Ten thousand topics of three partitions, and as many groups."""
    view = ConsoleClusterView("cluster", 0, sampled_s=time.time())
    view.brokers = {0: ConsoleBrokerView(0, "localhost", 9092)}
    for n in range(LARGE):
        partitions = [
            PartitionView(index, 0, 1, (0,), (0,), start=0, end=n, size_bytes=n)
            for index in range(3)
        ]
        name, group = f"topic-{n:05}", f"group-{n:05}"
        view.topics[name] = TopicView(name, str(n), False, partitions, float(n), 604_800_000)
        view.topics[name].groups = {group: n}
        offsets = [GroupOffset(name, 0, 0, n, GroupStatus.OK, TimeLag(0.0, True))]
        view.groups[group] = GroupView(
            group, "Empty", "classic", "consumer", 0, 0, offsets, GroupStatus.OK
        )
    return view


@pytest.mark.parametrize("path", ["/topics", "/groups", "/raft"])
@pytest.mark.parametrize(
    ("query", "rows"),
    [({}, PAGE_SIZE), ({"size": "100000"}, PAGE_SIZE_MAX), ({"page": "200"}, PAGE_SIZE),
     ({"q": "-00042"}, None)],
)  # fmt: skip
def test_list_of_ten_thousand_items_is_paginated(
    path: str, query: dict[str, str], rows: int | None
) -> None:
    async def main() -> Any:
        made = state()
        made.sampler.view = large_view()
        return await render(made, path, is_operator=False, query=query)

    html, parts = asyncio.run(main())
    shown = len(set(re.findall(r'data-key="[^"]*(?:topic|group)-\d{5}[^"]*"', html)))
    assert shown == (rows if rows is not None else 3 if path == "/raft" else 1)
    assert sum(map(len, parts.values())) <= len(html)


def test_overview_of_ten_thousand_topics_shows_only_the_busiest() -> None:
    async def main() -> Any:
        made = state()
        made.sampler.view = large_view()
        return await render(made, "/", is_operator=False)

    html, _ = asyncio.run(main())
    assert "topic-09999" in html
    assert len(set(re.findall(r"(?:topic|group)-\d{5}", html))) <= PAGE_SIZE


def test_pages_without_content_are_not_in_the_menu() -> None:
    async def main() -> Any:
        made = state()
        made.sampler.view.sampled_s = 1.0
        return await render(made, "/", is_operator=False)

    html, _ = asyncio.run(main())
    for absent in (
        "/raft",
        "/coordination",
        "/gateways",
        "/tasks",
        "/pipeline",
        "/trends",
        "/faults",
    ):
        assert f'href="{absent}"' not in html
