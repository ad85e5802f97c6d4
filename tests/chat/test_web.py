"""The web chat page in a real browser: two users, one gateway, a back end that restarts."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from tests.chat.platform import Platform, platform

from kafkaesque.chat.web_server import policy
from kafkaesque.edge.client import EdgeClient, Happening
from kafkaesque.edge.client_state import Credentials

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make setup")
CHROMIUM = shutil.which("chromium")
MS_MAX = 60_000

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make clients"),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def stack(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(kafka, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[sync_api.Browser]:
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


class Person:
    """One browser profile with the page open."""

    def __init__(self, browser: sync_api.Browser, url: str) -> None:
        self.context = browser.new_context(viewport={"width": 1100, "height": 720})
        self.page = self.context.new_page()
        self.page.set_default_timeout(MS_MAX)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._heard)
        self.page.on("request", lambda request: self._asked(request.url, url))
        self.page.goto(url)

    def _heard(self, message: sync_api.ConsoleMessage) -> None:
        if message.type == "error":
            self.wrong.append(message.text)

    def _asked(self, address: str, url: str) -> None:
        if not address.startswith(url):
            self.wrong.append(f"asked for {address}")

    def enter(self, name: str, *, register: bool = True) -> None:
        self.page.fill("#login-name", name)
        self.page.fill("#login-password", "correct horse")
        self.page.click("#login-register" if register else "#login-enter")
        self.page.wait_for_selector("#app:not([hidden])")

    def find(self, name: str) -> None:
        """Retries, because the list of names may lag."""
        for _ in range(20):
            self.page.fill("#find", name)
            try:
                self.page.click(f'#found li[data-name="{name}"]', timeout=3000)
                return
            except sync_api.TimeoutError:
                self.page.fill("#find", "")
        raise AssertionError(f"{name} is not found")

    def write(self, text: str) -> None:
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def sees(self, selector: str, text: str) -> None:
        sync_api.expect(self.page.locator(selector).filter(has_text=text).first).to_be_visible(
            timeout=MS_MAX
        )


def test_two_users_chat_while_the_back_end_restarts(
    stack: Platform, browser: sync_api.Browser, tmp_path: Path
) -> None:
    ann, bob = Person(browser, stack.page), Person(browser, stack.page)
    ann.enter("web-ann")
    bob.enter("web-bob")
    ann.sees("#state", "online")
    ann.find("web-bob")
    ann.write("hello <b>bob</b> & co")
    bob.sees("#threads .badge", "1")
    bob.sees("#threads .name", "web-ann")
    ann.sees("#lines .at[data-stage=delivered]", "\u2713\u2713")
    bob.page.click('#threads li[data-name="web-ann"]')
    bob.sees("#lines li", "hello <b>bob</b> & co")
    assert bob.page.locator("#lines b").count() == 0, "text is text"
    ann.sees("#lines .at[data-stage=read]", "read")
    sync_api.expect(bob.page.locator("#threads .badge")).to_have_count(0, timeout=MS_MAX)
    bob.page.type("#text", "hi an")
    ann.sees("#typing", "web-bob is typing")
    shots = Path(os.environ.get("CHAT_SCREENSHOTS", str(tmp_path)))
    ann.page.screenshot(path=shots / "ann.png")
    stack.run(stack.stop_backend())
    bob.write("hi ann")
    bob.sees("#lines .at[data-stage=sending]", "\u2026")
    ann.sees("#state", "online")
    stack.run(stack.start_backend())
    ann.sees("#lines li", "hi ann")
    bob.page.screenshot(path=shots / "bob.png")
    assert ann.wrong == bob.wrong == []


def test_page_survives_its_gateway_and_misses_nothing(
    stack: Platform, browser: sync_api.Browser
) -> None:
    ann, bob = Person(browser, stack.page), Person(browser, stack.page)
    ann.enter("kill-ann")
    bob.enter("kill-bob")
    ann.find("kill-bob")
    ann.write("before")
    bob.page.click('#threads li[data-name="kill-ann"]')
    bob.sees("#lines li", "before")
    other = stack.run(stack.start_gateway("g2"))
    stack.run(stack.kill_gateway("g1"))
    for person in (ann, bob):
        person.sees("#state", "connecting")
    ann.write("into the dark")
    ann.sees("#lines .at[data-stage=sending]", "\u2026")
    stack.run(write_from("kill-cat", other, "kill-bob", "you missed this"))
    stack.run(stack.start_gateway("g1", int(stack.gateway.rpartition(":")[2])))
    for person in (ann, bob):
        person.sees("#state", "online")
    bob.sees("#lines li", "into the dark")
    ann.sees("#lines .at[data-stage=read]", "read")
    ann.write("after")
    bob.sees("#lines li", "after")
    assert texts(bob) == texts(ann) == ["before", "into the dark", "after"]
    bob.page.click('#threads li[data-name="kill-cat"]')
    bob.sees("#lines li", "you missed this")
    assert texts(bob) == ["you missed this"]
    # A browser says by itself, and in red, that it could not connect.
    assert [
        text for text in (*ann.wrong, *bob.wrong) if "WebSocket connection to" not in text
    ] == []


def texts(person: Person) -> list[str]:
    """The texts of the shown messages, without sender and time."""
    shown: list[str] = person.page.locator("#lines li").evaluate_all(
        """lines => lines.map(line => Array.from(line.childNodes)
            .filter(node => node.nodeType === Node.TEXT_NODE).map(node => node.data).join(""))"""
    )
    return shown


async def write_from(name: str, gateway: str, to: str, text: str) -> None:
    """Sends a message through another gateway and returns when it is in the inbox."""
    credentials = Credentials(name=name, password="correct horse", register=True)
    async with EdgeClient([gateway], credentials) as client:
        command = await client.send("message.send", {"to": to, "text": text})
        async for event in client.events():
            if isinstance(event, Happening) and event.re == command:
                assert event.body["ok"] is True
                return


def test_notification_alerts_a_user_in_another_thread_and_adds_no_message(
    stack: Platform, browser: sync_api.Browser
) -> None:
    bob = Person(browser, stack.page)
    bob.enter("told-bob")
    stack.run(write_from("told-ann", stack.gateway, "told-bob", "hello"))
    bob.sees("#threads .badge", "1")
    stack.run(stack.notify("told-bob", "told-ann"))
    # Its text stays when it is hidden after a while.
    toast = bob.page.locator("#toast")
    sync_api.expect(toast).to_have_text("told-ann wrote to you.", timeout=MS_MAX)
    bob.sees("#threads .badge", "1")
    bob.page.click('#threads li[data-name="told-ann"]')
    bob.sees("#lines li", "hello")
    assert texts(bob) == ["hello"]
    assert bob.wrong == []


def test_room_is_created_joined_and_posted_to(stack: Platform, browser: sync_api.Browser) -> None:
    ann, bob = Person(browser, stack.page), Person(browser, stack.page)
    ann.enter("room-ann")
    bob.enter("room-bob")
    ann.find("#lounge")
    ann.sees("#thread-name", "#lounge")
    bob.find("#lounge")
    bob.sees("#thread-name", "#lounge")
    bob.write("hello, everybody")
    ann.sees("#lines li", "hello, everybody")
    ann.sees("#lines .by", "room-bob")


def test_reload_keeps_the_session_and_a_new_login_shows_the_history(
    stack: Platform, browser: sync_api.Browser
) -> None:
    ann, bob = Person(browser, stack.page), Person(browser, stack.page)
    ann.enter("again-ann")
    bob.enter("again-bob")
    ann.find("again-bob")
    ann.write("one")
    bob.sees("#threads .badge", "1")
    ann.page.reload()
    ann.page.wait_for_selector("#app:not([hidden])")
    ann.page.click('#threads li[data-name="again-bob"]')
    ann.sees("#lines li.mine", "one")
    bob.page.click("#logout")
    bob.page.wait_for_selector("#login:not([hidden])")
    bob.enter("again-bob", register=False)
    bob.page.click('#threads li[data-name="again-ann"]')
    bob.sees("#lines li", "one")


def test_wrong_password_and_taken_name_show_an_error(
    stack: Platform, browser: sync_api.Browser
) -> None:
    ann = Person(browser, stack.page)
    ann.enter("taken-ann")
    other = Person(browser, stack.page)
    for button, password, text in (
        ("#login-register", "whatever else", "taken"),
        ("#login-enter", "whatever else", "Wrong name or password"),
    ):
        other.page.fill("#login-name", "taken-ann")
        other.page.fill("#login-password", password)
        other.page.click(button)
        other.sees("#login-error", text)


def test_unknown_recipient_and_account_deletion_are_shown(
    stack: Platform, browser: sync_api.Browser
) -> None:
    ann, bob = Person(browser, stack.page), Person(browser, stack.page)
    ann.enter("gone-ann")
    bob.enter("gone-bob")
    ann.find("gone-bob")
    bob.page.on("dialog", lambda dialog: dialog.accept())
    bob.page.click("#delete")
    bob.sees("#login-error", "deleted")
    ann.write("are you there?")
    ann.sees("#lines .at[data-stage=failed]", "there is no account gone-bob")


def test_page_has_a_strict_policy_and_serves_only_its_own_files(stack: Platform) -> None:
    answer = httpx.get(stack.page)
    given = answer.headers["content-security-policy"]
    assert given == policy([f"ws://{stack.gateway}/"])
    assert "default-src 'none'" in given
    assert "unsafe" not in given
    assert "http" not in answer.text
    for path in ("../backend.py", "%2e%2e/backend.py", "web/chat.js", "nothing.js"):
        assert httpx.get(stack.page + path).status_code == 404
    assert httpx.get(stack.page + "client.js").headers["content-type"].startswith("text/javascript")
