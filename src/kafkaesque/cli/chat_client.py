"""`kafkaesque chat client`: keyboard input and output of the terminal client.

View and keyboard rules are in chat/client/rules, drawing in chat/client/screen.py, what typed lines do in
chat/client/commands.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import click

from kafkaesque.chat.client.commands import CommandRunner
from kafkaesque.chat.client.rules.terminal_input import Keyboard
from kafkaesque.chat.client.screen import ScreenFrame, draw, printable
from kafkaesque.chat.client.session import ChatSession, now_ms
from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.cli.stdin_lines import read_lines
from kafkaesque.edge.client import ClientClosed, EdgeClient, RequestFailed
from kafkaesque.edge.client_state import Credentials

REDRAW_SECONDS = 1.0
"""Redraw interval without events: a typing indicator may have expired."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The options of `chat client`."""

    gateways: Sequence[str]
    credentials: Credentials
    app_version: str
    plain: bool
    as_json: bool


def run_client(options: ClientOptions) -> None:
    plain = options.plain or options.as_json or not (sys.stdin.isatty() and sys.stdout.isatty())
    try:
        ended = asyncio.run(_client(options, plain))
    except RequestFailed as failed:
        raise CommandFailure(str(failed)) from None
    except ClientClosed as closed:
        raise CannotConnect(
            str(closed), "check that a gateway and a back end run: `kafkaesque status`"
        ) from None
    if ended is not None:
        click.echo(ended, err=True)


async def _client(options: ClientOptions, plain: bool) -> str | None:
    states: list[str] = ["connecting"]
    client = EdgeClient(
        options.gateways,
        options.credentials,
        app_version=options.app_version,
        on_state=lambda state: states.append(state),
    )
    async with client:
        session = ChatSession(client)
        await session.start()
        try:
            if plain:
                await PlainClient(session, _json_line if options.as_json else _text_line).run()
            else:
                await TerminalClient(session, states).run()
        finally:
            await session.stop()
        return session.view.ended


class TerminalClient:
    """Full-screen client with raw key input; redraws on changes."""

    def __init__(self, session: ChatSession, states: list[str]) -> None:
        self._session = session
        self._states = states
        self._runner = CommandRunner(session)
        self._keyboard = Keyboard()
        self._typed = ""
        self._scroll = 0
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._shown: list[str] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        first = next(iter(self._session.view.ordered), None)
        if first is not None:
            await self._session.choose(first.name)
        with _raw_terminal():
            loop.add_reader(sys.stdin.fileno(), self._read_keys)
            loop.add_signal_handler(signal.SIGWINCH, self._resized)
            drawing = asyncio.create_task(self._draw_loop())
            try:
                while (line := await self._lines.get()) is not None:
                    if not await self._runner.run(line):
                        return
                    self._session.changed.set()
            finally:
                drawing.cancel()
                await asyncio.gather(drawing, return_exceptions=True)
                loop.remove_reader(sys.stdin.fileno())
                loop.remove_signal_handler(signal.SIGWINCH)

    def _resized(self) -> None:
        self._shown = []
        self._session.changed.set()

    def _read_keys(self) -> None:
        data = os.read(sys.stdin.fileno(), 4096)
        for key in self._keyboard.feed(data) if data else ["quit"]:
            self._press(key)
        self._session.changed.set()

    def _press(self, key: str) -> None:
        match key:
            case "enter":
                self._lines.put_nowait(self._typed)
                self._typed, self._scroll = "", 0
            case "erase":
                self._typed = self._typed[:-1]
            case "clear":
                self._typed = ""
            case "quit":
                self._lines.put_nowait(None)
            case "next" | "previous":
                self._session.send_commands(self._session.view.step(1 if key == "next" else -1))
                if (name := self._session.view.current) is not None:
                    self._lines.put_nowait(f"/to {name}")
                self._scroll = 0
            case "pageup" | "pagedown":
                self._scroll = max(0, self._scroll + (5 if key == "pageup" else -5))
            case _:
                self._typed += key
                self._session.typing()

    async def _draw_loop(self) -> None:
        while True:
            self._draw()
            if self._session.view.ended is not None:
                self._lines.put_nowait(None)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REDRAW_SECONDS):
                    await self._session.changed.wait()
            self._session.changed.clear()

    def _draw(self) -> None:
        """Write only the lines that changed, which avoids flicker."""
        size = shutil.get_terminal_size()
        connection = "online" if self._states[-1] == "connected" else self._states[-1]
        frame = ScreenFrame(
            size.columns, size.lines, self._typed, connection, now_ms(), self._scroll
        )
        lines = draw(self._session.view, frame)
        before = self._shown if len(self._shown) == len(lines) else [""] * len(lines)
        out = [
            f"\x1b[{row};1H\x1b[2K{line}"
            for row, (line, old) in enumerate(zip(lines, before, strict=True), 1)
            if line != old
        ]
        self._shown = lines
        if out:
            sys.stdout.write("".join(out))
            sys.stdout.flush()


class OutputLine(NamedTuple):
    """A received message, or, without a sender, a notice of the client."""

    text: str
    sender: str | None = None
    room: str | None = None


def _text_line(line: OutputLine) -> str:
    if line.sender is None:
        return f"-- {printable(line.text)}"
    where = "" if line.room is None else f"{line.room} "
    return f"{printable(where + line.sender)}: {printable(line.text)}"


def _json_line(line: OutputLine) -> str:
    if line.sender is None:
        return json.dumps({"notice": line.text})
    return json.dumps({"from": line.sender, "room": line.room, "text": line.text})


class PlainClient:
    """Reads and prints lines: for scripts and simple terminals."""

    def __init__(self, session: ChatSession, show: Callable[[OutputLine], str]) -> None:
        self._session = session
        self._show = show
        self._runner = CommandRunner(session)
        self._notices_printed = 0
        self._seen: set[str] = set()

    async def run(self) -> None:
        printing = asyncio.create_task(self._print_loop())
        try:
            async for line in read_lines(sys.stdin.buffer):
                if not await self._runner.run(line):
                    return
                self._session.changed.set()
        finally:
            printing.cancel()
            await asyncio.gather(printing, return_exceptions=True)

    async def _print_loop(self) -> None:
        while True:
            self._print_new()
            await self._session.changed.wait()
            self._session.changed.clear()

    def _print_new(self) -> None:
        view = self._session.view
        for thread in list(view.threads.values()):
            for line in thread.lines.values():
                if line.message_id not in self._seen:
                    self._seen.add(line.message_id)
                    if line.sender != view.me:
                        room = thread.name if thread.is_room else None
                        click.echo(self._show(OutputLine(line.text, line.sender, room)))
        for notice in view.notices[self._notices_printed :]:
            click.echo(self._show(OutputLine(notice)))
        self._notices_printed = len(view.notices)
        sys.stdout.flush()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """Raw mode on the alternate screen; restores the terminal on exit."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    sys.stdout.write(_ENTER)
    sys.stdout.flush()
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
