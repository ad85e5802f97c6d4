"""The terminal client over a real gateway: its session, its lines, its screen in a pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
from tests.chat.platform import Platform, platform
from tests.waiting import eventually, until

from kafkaesque.chat.client.commands import CommandRunner
from kafkaesque.chat.client.session import ChatSession
from kafkaesque.edge.client import EdgeClient
from kafkaesque.edge.client_state import Credentials

SECONDS_MAX = 90.0
pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def stack(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    with platform(kafka, tmp_path_factory.mktemp("gateway")) as running:
        yield running


@asynccontextmanager
async def session_of(
    stack: Platform, name: str, *, register: bool = True
) -> AsyncIterator[ChatSession]:
    credentials = Credentials(name=name, password="correct horse", register=register)
    async with EdgeClient([stack.gateway], credentials) as client:
        session = ChatSession(client)
        await session.start()
        try:
            yield session
        finally:
            await session.stop()


def test_two_sessions_exchange_messages_and_receipts(stack: Platform) -> None:
    async def story() -> None:
        async with session_of(stack, "s-ann") as ann, session_of(stack, "s-bob") as bob:
            assert await CommandRunner(ann).run("/to s-bob")
            assert await CommandRunner(ann).run("hello")
            await until(lambda: bob.view.unread == 1)
            line = next(iter(ann.view.threads["s-bob"].lines.values()))
            await until(lambda: line.stage == "delivered")
            await bob.choose("s-ann")
            await until(lambda: line.stage == "read")
            bob.typing()
            await until(lambda: ann.view.threads["s-bob"].typing_ms > 0)
            await CommandRunner(ann).run("/to s-nobody")
            await CommandRunner(ann).run("is there anybody?")
            await until(lambda: "there is no account s-nobody" in ann.view.notices)
            await CommandRunner(ann).run("/list s-*")
            assert "s-ann" in ann.view.notices[-1]

    asyncio.run(story())


def test_messages_sent_while_offline_are_delivered_at_the_next_login(stack: Platform) -> None:
    async def story() -> None:
        async with session_of(stack, "q-ann") as ann:
            async with session_of(stack, "q-bob"):
                pass
            await ann.write("q-bob", "while you were out")
            line = next(iter(ann.view.threads["q-bob"].lines.values()))
            await until(lambda: line.stage == "queued")
            async with session_of(stack, "q-bob", register=False) as bob:
                assert bob.view.threads["q-ann"].unread == 1
                await until(lambda: line.stage == "delivered")
                await bob.choose("q-ann")
                texts = [one.text for one in bob.view.threads["q-ann"].lines.values()]
                assert texts == ["while you were out"]

    asyncio.run(story())


def test_typed_lines_manage_rooms_and_delete_the_account(stack: Platform) -> None:
    async def story() -> None:
        async with session_of(stack, "r-ann") as ann, session_of(stack, "r-bob") as bob:
            await CommandRunner(ann).run("/create den")
            await CommandRunner(bob).run("/join den")
            await CommandRunner(bob).run("hello, den")
            await until(lambda: len(ann.view.threads["#den"].lines) == 1)
            await CommandRunner(bob).run("/leave den")
            await until(lambda: "r-bob left #den" in ann.view.notices)
            assert "#den" not in bob.view.threads
            await CommandRunner(bob).run("/nonsense")
            assert "unknown command /nonsense" in bob.view.notices[-1]
            await CommandRunner(bob).run("/delete")
            await until(lambda: bob.view.ended is not None)
            assert not await CommandRunner(ann).run("/quit")

    asyncio.run(story())


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kafkaesque.cli.main", "chat", *arguments],
        env={**os.environ, "KAFKAESQUE_CHAT_PASSWORD": "correct horse"},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )


def test_one_shot_commands_send_list_and_report_failures(stack: Platform) -> None:
    gateway = ("-g", stack.gateway)

    async def register() -> None:
        async with session_of(stack, "o-bob"):
            pass

    asyncio.run(register())
    sent = run("send", *gateway, "-n", "o-ann", "--register", "o-bob", "hello", "--json")
    assert json.loads(sent.stdout)["ok"] is True, sent.stderr
    listed = run("list", *gateway, "-n", "o-ann", "o-*", "--json")
    assert {row["name"] for row in json.loads(listed.stdout)} == {"o-ann", "o-bob"}
    refused = run("send", *gateway, "-n", "o-ann", "o-nobody", "hello")
    assert refused.returncode == 1
    assert "unknown-recipient" in refused.stderr


class Terminal:
    """`chat client` in a pseudo-terminal of 80 by 24."""

    def __init__(self, *arguments: str) -> None:
        self._main, side = pty.openpty()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kafkaesque.cli.main", "chat", "client", *arguments],
            stdin=side, stdout=side, stderr=side, start_new_session=True,
            env={**os.environ, "KAFKAESQUE_CHAT_PASSWORD": "correct horse",
                 "COLUMNS": "80", "LINES": "24", "TERM": "xterm"},
        )  # fmt: skip
        os.close(side)
        self.output = ""

    def until(self, condition: Callable[[str], bool]) -> None:
        """Reads the terminal until `condition` holds for its text without escape sequences."""

        def read_and_check() -> bool:
            if select.select([self._main], [], [], 0.1)[0]:
                self.output += os.read(self._main, 65536).decode(errors="replace")
            return condition(re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", self.output))

        eventually(read_and_check, "the terminal did not show it", SECONDS_MAX)

    def type(self, text: str) -> None:
        os.write(self._main, text.encode())

    def end(self) -> int:
        """The exit code. Output is read meanwhile, because a full terminal buffer would block the exit."""

        def read_and_check() -> bool:
            if select.select([self._main], [], [], 0.1)[0]:
                try:
                    self.output += os.read(self._main, 65536).decode(errors="replace")
                except OSError:  # the other side of the terminal is closed
                    return True
            return self._process.poll() is not None

        eventually(read_and_check, "the client did not end", SECONDS_MAX)
        code = self._process.wait(SECONDS_MAX)
        os.close(self._main)
        return code


def test_terminal_client_shows_messages_and_restores_the_terminal(stack: Platform) -> None:
    async def story() -> None:
        async with session_of(stack, "t-bob") as bob:
            terminal = Terminal("-g", stack.gateway, "-n", "t-ann", "--register")
            await asyncio.to_thread(terminal.until, lambda seen: "kafkaesque chat   t-ann" in seen)
            terminal.type("/to t-bob\rhello from the terminal\r")
            await until(lambda: bob.view.unread == 1)
            await bob.write("t-ann", "hello back")
            await asyncio.to_thread(terminal.until, lambda seen: "t-bob: hello back" in seen)
            terminal.type("\x03")
            assert await asyncio.to_thread(terminal.end) == 0
            assert terminal.output.rstrip().endswith("\x1b[?1049l"), "the screen is restored"

    asyncio.run(story())
