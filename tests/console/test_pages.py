"""The pages in a real browser (Debian's Chromium).

Screenshots are stored in build/screenshots, or in KAFKAESQUE_SCREENSHOTS.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from tests.console.running_console import PASSWORD, RunningConsole, read_as_group, write

from kafkaesque.testing import Broker

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TIMEOUT_MS = 60_000

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make clients"),
    pytest.mark.timeout(900),
]

PAGES = {
    "/": "Most lagging groups",
    "/topics": "orders",
    "/topics/orders": "Relative size",
    "/topics/orders?tab=groups": "billing",
    "/topics/orders?tab=settings": "retention.ms",
    "/groups": "billing",
    "/groups/billing": "has no members, but unread records",
    "/brokers": "controller",
    "/raft": "Controller quorum",
    "/chat": "Open the chat",
    "/pipeline": "2026-11-16T04:58:00.000Z",
    "/trends": "#kafka",
}
"""The pages of services are tested in `test_service_pages.py`."""
SCREENSHOTS = Path(__file__).resolve().parents[2] / "build" / "screenshots"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def shots() -> Path:
    place = Path(os.environ.get("KAFKAESQUE_SCREENSHOTS") or SCREENSHOTS)
    place.mkdir(parents=True, exist_ok=True)
    return place


class Watched:
    """A browser page that records errors, warnings and dialogs."""

    def __init__(self, context: BrowserContext, console: RunningConsole, shots: Path) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(TIMEOUT_MS)
        self.complaints: list[str] = []
        self._console = console
        self._shots = shots
        self.page.on("console", self._record_message)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", self._dismiss_dialog)

    def _record_message(self, message: object) -> None:
        if getattr(message, "type", "") in ("error", "warning"):
            where = getattr(message, "location", {}).get("url", "")
            self.complaints.append(f"{getattr(message, 'text', '')} ({where})")

    def _dismiss_dialog(self, dialog: object) -> None:
        self.complaints.append("a dialog opened: a script was executed")
        dialog.dismiss()  # type: ignore[attr-defined]

    def address(self, path: str) -> str:
        return self._console.url + path

    def open(self, path: str) -> Page:
        self.page.goto(self.address(path), wait_until="load", timeout=TIMEOUT_MS)
        return self.page

    def shoot(self, name: str) -> None:
        self.page.screenshot(path=self._shots / f"{name}.png", full_page=True)

    def sign_in(self) -> None:
        self.page.click("#operator")
        self.page.fill("#sign-in input[name=password]", PASSWORD)
        self.page.click("#sign-in button.primary")
        expect(self.page.locator("#operator")).to_have_text("Sign out", timeout=TIMEOUT_MS)
        self.page.wait_for_load_state("load")


@pytest.fixture
def watched(browser: Browser, console: RunningConsole, shots: Path) -> Iterator[Watched]:
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    seen = Watched(context, console, shots)
    yield seen
    context.close()
    assert seen.complaints == []


def test_each_page_shows_real_data(watched: Watched) -> None:
    for path, words in PAGES.items():
        page = watched.open(path)
        expect(page.locator("main")).to_contain_text(words, timeout=TIMEOUT_MS)
        expect(page.locator("#connection")).to_have_text("live", timeout=TIMEOUT_MS)
        name = path.strip("/").replace("/", "-").replace("?tab=", "-") or "overview"
        watched.shoot(name)


def test_the_dark_theme_is_remembered(watched: Watched) -> None:
    page = watched.open("/")
    page.keyboard.press("t")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 22, 26)"
    expect(page.locator(".u-legend").first).to_be_visible(timeout=TIMEOUT_MS)
    watched.shoot("overview-dark")


def test_a_filter_finds_matching_records(watched: Watched) -> None:
    page = watched.open("/topics/orders?tab=messages")
    expect(page.locator("tr.record")).to_have_count(50, timeout=TIMEOUT_MS)
    page.fill("input[name=filter]", 'value.user.id == 3 and value.state == "late"')
    page.click("#search button.primary")
    expect(page.locator("#progress-text")).to_contain_text("15 matches in 300", timeout=TIMEOUT_MS)
    expect(page.locator("tr.record")).to_have_count(15)
    page.locator("tr.record").first.press("Enter")
    expect(page.locator("tr.detail pre").first).to_be_visible()
    watched.shoot("messages")
    page.fill("input[name=filter]", "value =")
    page.click("#search button.primary")
    expect(page.locator("#progress-text")).to_contain_text("expected", timeout=TIMEOUT_MS)
    # Chromium logs the rejected request as an error.
    assert all("400" in complaint for complaint in watched.complaints)
    watched.complaints.clear()


def test_hostile_messages_are_shown_as_text(watched: Watched) -> None:
    page = watched.open("/topics/hostile?tab=messages")
    expect(page.locator("tr.record")).to_have_count(8, timeout=TIMEOUT_MS)
    for number in range(8):
        page.locator("tr.record").nth(number).press("Enter")
    expect(page.locator("tr.detail")).to_have_count(8)
    assert page.locator("#records script, #records img, #records b").count() == 0
    assert "<script>alert(1)</script>" in page.locator("#records").inner_text()
    watched.shoot("hostile")
    page = watched.open("/trends")
    expect(page.locator("main")).to_contain_text("#<b>bold</b>", timeout=TIMEOUT_MS)


def test_a_live_tail_shows_new_records(watched: Watched, broker: Broker) -> None:
    page = watched.open("/topics/copies?tab=messages")
    page.click("#follow")
    expect(page.locator("#progress-text")).to_contain_text(
        "since you started following", timeout=TIMEOUT_MS
    )
    write(broker.bootstrap_servers, "copies", [b"just now"])
    expect(page.locator("tr.record").first).to_contain_text("just now", timeout=TIMEOUT_MS)
    page.click("#stop")


def test_offsets_are_reset_in_the_browser(
    watched: Watched, broker: Broker, console: RunningConsole
) -> None:
    write(broker.bootstrap_servers, "by-hand", [b"%d" % n for n in range(10)])
    read_as_group(broker.bootstrap_servers, "handled", "by-hand", 10)
    console.wait_for_group("handled", lag=0, members=0)
    page = watched.open("/groups/handled")
    watched.sign_in()
    page.click("button[data-opens=reset]")
    page.click("#reset button[name=dry]")
    expect(page.locator("#plan tbody tr")).to_have_count(1, timeout=TIMEOUT_MS)
    watched.shoot("reset")
    page.click("#reset button[name=do]")
    expect(page.locator("#reset output")).to_contain_text("were reset", timeout=TIMEOUT_MS)
    page.click("#reset [data-close]")
    expect(page.locator("#live_offsets")).to_contain_text("10", timeout=TIMEOUT_MS)
    console.wait_for_group("handled", lag=10)


def test_an_operator_produces_a_record_and_signs_out(watched: Watched) -> None:
    page = watched.open("/topics/copies?tab=messages")
    assert page.locator("button[data-opens=produce]").count() == 0
    watched.sign_in()
    page.click("button[data-opens=produce]")
    page.fill("#produce textarea[name=value]", "from the browser")
    page.click("#produce button.primary")
    expect(page.locator("#produce output")).to_contain_text("offset", timeout=TIMEOUT_MS)
    page.click("#produce [data-close]")
    page.click("#operator")
    expect(page.locator("#operator")).to_have_text("Sign in", timeout=TIMEOUT_MS)


def test_a_new_topic_appears_live_and_focus_stays(watched: Watched, broker: Broker) -> None:
    page = watched.open("/topics")
    page.locator("th a", has_text="orders").first.focus()
    write(broker.bootstrap_servers, "late-comer", [b"x"])
    expect(page.locator("#live_table")).to_contain_text("late-comer", timeout=TIMEOUT_MS)
    assert page.evaluate("document.activeElement.textContent") == "orders"
    events = watched.open("/events").locator("#live_events")
    expect(events).to_contain_text("late-comer", timeout=TIMEOUT_MS)
    watched.shoot("events")


def test_keyboard_shortcuts(watched: Watched) -> None:
    page = watched.open("/")
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("hostile")
    page.keyboard.press("Enter")
    page.wait_for_url("**q=hostile*")
    expect(page.locator("#live_table tbody tr")).to_have_count(1)


def test_accessibility_of_controls_and_tables(watched: Watched) -> None:
    page = watched.open("/topics")
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("main h1").count() == 1
    assert page.locator("[role=status]").count() >= 1
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input:not([type=hidden]), select, svg[role=img]')]
            .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length
                           || e.title)).map(e => e.outerHTML)"""
    )
    assert unnamed == []
    scopeless = page.evaluate("document.querySelectorAll('th:not([scope])').length")
    assert scopeless == 0


def test_a_page_weighs_less_than_100_kilobytes(watched: Watched) -> None:
    sizes: list[int] = []
    session = watched.page.context.new_cdp_session(watched.page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    watched.open("/")
    expect(watched.page.locator(".u-legend").first).to_be_visible(timeout=TIMEOUT_MS)
    assert 10_000 < sum(sizes) < 100_000
