"""The services' pages and fault injection, with real services and in a real browser."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.console.running_console import PASSWORD, RunningConsole
from tests.console.running_platform import CHORES, USER, RunningPlatform
from tests.console.test_pages import CHROMIUM, TIMEOUT_MS, Watched
from tests.console.test_pages import browser as browser
from tests.console.test_pages import shots as shots
from tests.waiting import eventually

from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.java import find_java
from kafkaesque.pipeline.paths import cache_directory
from kafkaesque.pipeline.session import require_packages

POSTS = 200
SLOW_S = 180.0
"""For starting or restarting processes on a busy machine."""

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make clients"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPlatform]:
    with RunningPlatform(tmp_path_factory.mktemp("up")) as running:
        yield running


@pytest.fixture(scope="module")
def console(platform: RunningPlatform) -> Iterator[RunningConsole]:
    config = ConsoleConfig(
        bootstrap=platform.bootstrap,
        password=PASSWORD,
        coordination=platform.coordination,
        control_file=platform.control_file,
        pipeline_data=platform.data / "pipeline",
    )
    with RunningConsole(config) as running:
        wait_for_client(running)
        eventually(lambda: figure(running, "dead") == 1, "a task was given up", SLOW_S)
        eventually(lambda: figure(running, "retried") >= 1, "a task was tried again", SLOW_S)
        eventually(lambda: figure(running, "done") > CHORES, "tasks are done", SLOW_S)
        yield running


@pytest.fixture(scope="module")
def spark_queries(request: pytest.FixtureRequest, platform: RunningPlatform) -> None:
    """Run the local source and two Spark queries on its posts."""
    if "slow_spark" not in (request.config.getoption("markexpr") or ""):
        pytest.skip("minutes: pytest -m slow_spark tests/console")
    try:
        require_packages()
        find_java(os.environ, cache_directory(os.environ))
    except PipelineError as error:
        pytest.skip(f"{error.message}: {error.fix}")
    where = ("-b", platform.bootstrap, "--data")
    for words in (
        ("source", "run", "--limit", str(POSTS), "--rate", "500", *where, "source"),
        ("pipeline", "run", "posts", "trends-live", "--once", *where, "pipeline"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kafkaesque.cli.main", *words[:-1], str(platform.data / words[-1])],
            capture_output=True, text=True, timeout=600, check=False, input="",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.fixture
def watched(browser: Browser, console: RunningConsole, shots: Path) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        seen = Watched(context, console, shots)
        yield seen
    finally:
        context.close()
    assert seen.complaints == []


def figure(console: RunningConsole, name: str) -> float:
    """A metric summed over all workers."""
    pages = console.get("/api/tasks")["pages"]
    return sum(row["value"] for page in pages for row in page["figures"] if row["name"] == name)


def wait_for_client(console: RunningConsole) -> None:
    eventually(
        lambda: console.get("/api/gateways")["figures"]["connections"] == 1,
        f"{USER} is connected",
        SLOW_S,
    )


def wait_for_another(console: RunningConsole, before: Any) -> None:
    """Wait until the process runs again; on a busy machine it may need a second attempt."""

    def runs_again() -> bool:
        now = process(console, before["name"])
        is_new = now["restarts"] > before["restarts"] and now["pid"] != before["pid"]
        return is_new and now["state"] == "running"

    eventually(runs_again, f"another {before['name']} runs", SLOW_S)


def process(console: RunningConsole, name: str) -> Any:
    found = console.get("/api/processes")["processes"]
    return next(item for item in found if item["name"] == name)


def row(page: Page, table: str, name: str) -> Any:
    return page.locator(f"{table} tbody tr", has=page.locator("th", has_text=name))


def test_coordination_shows_nodes_with_data_and_the_sessions_that_own_them(
    watched: Watched,
) -> None:
    page = watched.open("/coordination")
    sessions = page.locator("section", has_text="Sessions with ephemeral nodes")
    expect(sessions).to_contain_text("/gateways/gateway-0", timeout=TIMEOUT_MS)
    expect(page.locator("section", has_text="Servers")).to_contain_text("leader")
    watched.shoot("coordination")
    page.get_by_role("link", name="gateways", exact=True).click()
    page.get_by_role("link", name="gateway-0", exact=True).click()
    expect(page.locator("main")).to_contain_text("Ephemeral owner", timeout=TIMEOUT_MS)
    expect(page.locator("main pre")).to_contain_text("127.0.0.1:")


def test_gateways_shows_client_connections(watched: Watched) -> None:
    page = watched.open("/gateways")
    title = page.locator("dt", has_text=re.compile("^Connections$"))
    connections = page.locator("#live_figures .figure", has=title)
    expect(connections.locator("dd").first).to_have_text("1", timeout=TIMEOUT_MS)
    expect(page.locator("#live_gateways")).to_contain_text("gateway-0")
    expect(page.locator("#live_gateways")).to_contain_text("welcomed")
    watched.shoot("gateways")


def test_chat_shows_its_backend(watched: Watched) -> None:
    main = watched.open("/chat").locator("main")
    expect(main).to_contain_text("chat.journal", timeout=TIMEOUT_MS)
    watched.shoot("chat")


def test_tasks_shows_calls_retries_timers_and_dead_letters(watched: Watched) -> None:
    page = watched.open("/tasks")
    tasks = page.locator("#live_tasks")
    expect(tasks).to_contain_text("Pending timers", timeout=TIMEOUT_MS)
    expect(row(page, "#live_tasks", "retried").first).to_be_visible()
    expect(page.get_by_role("link", name="chores", exact=True)).to_be_visible()
    watched.shoot("tasks")


def test_dead_letter_is_shown_and_redriven(watched: Watched, console: RunningConsole) -> None:
    page = watched.open("/tasks/chores")
    letters = page.locator("main tbody tr")
    expect(letters).to_have_count(1, timeout=TIMEOUT_MS)
    expect(letters.first).to_contain_text("move_a_mountain")
    letters.first.locator("summary").click()
    expect(letters.first).to_contain_text("Everest <b>does not</b> move")
    watched.shoot("dead-letters")
    watched.sign_in()
    first = page.locator("input[name=letter]").get_attribute("value")
    page.click("#all-letters")
    # The page reloads afterwards; leaving it earlier would cancel the request.
    with page.expect_event("load"), page.expect_response("**/redrive") as answer:
        page.get_by_role("button", name="Redrive selected").click()
    assert answer.value.status == 200

    def failed_again() -> bool:
        """The task fails again, with a new dead letter."""
        found = console.get("/api/tasks/chores/dead")["letters"]
        return [letter["id"] for letter in found] not in ([], [first])

    eventually(failed_again, "the call was tried again")
    expect(watched.open("/events").locator("main")).to_contain_text(
        "redrove 1 dead letter of queue chores", timeout=TIMEOUT_MS
    )


@pytest.mark.slow_spark
@pytest.mark.usefixtures("spark_queries")
def test_pipeline_and_trends_show_spark_queries(watched: Watched) -> None:
    page = watched.open("/pipeline")
    posts = row(page, "#live_queries", "posts")
    expect(posts).to_contain_text("stopped", timeout=TIMEOUT_MS)
    watched.shoot("pipeline")
    page = watched.open("/trends")
    expect(page.locator("#live_trends tbody tr").first).to_contain_text("#", timeout=TIMEOUT_MS)
    watched.shoot("trends-live")


def test_killed_process_is_restarted_and_marked_on_the_charts(
    watched: Watched, console: RunningConsole
) -> None:
    before = process(console, "gateway-0")
    page = watched.open("/faults")
    button = page.get_by_role("button", name="kill gateway-0")
    expect(button).to_be_disabled(timeout=TIMEOUT_MS)
    watched.sign_in()
    page.get_by_role("button", name="kill gateway-0").click()
    chart = page.locator("[data-series=records_in]")
    expect(chart).to_have_attribute("aria-label", re.compile("kill gateway-0"), timeout=TIMEOUT_MS)
    wait_for_another(console, before)
    shown = row(page, "#live_processes", "gateway-0")
    expect(shown.locator("td").nth(1)).not_to_have_text(str(before["pid"]), timeout=TIMEOUT_MS)
    expect(shown).to_contain_text("running", timeout=TIMEOUT_MS)
    watched.shoot("faults")
    wait_for_client(console)


def test_process_is_paused_resumed_and_restarted(watched: Watched, console: RunningConsole) -> None:
    page = watched.open("/faults")
    watched.sign_in()
    shown = row(page, "#live_processes", "tasks-0")
    page.get_by_role("button", name="pause tasks-0").click()
    expect(shown).to_contain_text("paused", timeout=TIMEOUT_MS)
    page.get_by_role("button", name="resume tasks-0").click()
    expect(shown).to_contain_text("running", timeout=TIMEOUT_MS)
    before = process(console, "tasks-0")
    page.get_by_role("button", name="restart tasks-0").click()
    wait_for_another(console, before)
    events = watched.open("/events?kind=fault").locator("main")
    for action in ("pause", "resume", "restart"):
        expect(events).to_contain_text(f"{action} tasks-0", timeout=TIMEOUT_MS)
