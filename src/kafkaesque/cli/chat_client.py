"""`kafkaesque chat client`: the terminal client. View and keyboard rules are in chat/client/rules, drawing in chat/client/screen.py."""

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

from kafkaesque.chat.client.rules.terminal_input import VERBS, Keyboard, TypedLine, parse_line
from kafkaesque.chat.client.screen import HELP, Frame, draw, printable
from kafkaesque.chat.client.session import ChatSession, now_ms
from kafkaesque.cli.failures import CannotConnect, Failure
from kafkaesque.cli.lines_in import lines_of
from kafkaesque.edge.client import ClientClosed, EdgeClient, RequestFailed
from kafkaesque.edge.client_state import Credentials

REDRAW_SECONDS = 1.0
"""Also without news: somebody may have stopped typing."""
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@dataclass(frozen=True, slots=True)
class ClientWanted:
    """What `chat client` was asked for."""

    gateways: Sequence[str]
    credentials: Credentials
    app_version: str
    plain: bool
    as_json: bool


def run_client(wanted: ClientWanted) -> None:
    plain = wanted.plain or wanted.as_json or not (sys.stdin.isatty() and sys.stdout.isatty())
    try:
        ended = asyncio.run(_client(wanted, plain))
    except RequestFailed as failed:
        raise Failure(str(failed)) from None
    except ClientClosed as closed:
        raise CannotConnect(str(closed)) from None
    if ended is not None:
        click.echo(ended, err=True)


async def _client(wanted: ClientWanted, plain: bool) -> str | None:
    states: list[str] = ["connecting"]
    client = EdgeClient(
        wanted.gateways,
        wanted.credentials,
        app_version=wanted.app_version,
        on_state=lambda state: states.append(state),
    )
    async with client:
        session = ChatSession(client)
        await session.start()
        try:
            if plain:
                await PlainClient(session, _json_line if wanted.as_json else _text_line).run()
            else:
                await TerminalClient(session, states).run()
        finally:
            await session.stop()
        return session.view.ended


class Doer:
    """What typed lines do, for both clients."""

    def __init__(self, session: ChatSession) -> None:
        self.session = session

    async def do(self, line: str) -> bool:
        """False to leave."""
        typed = parse_line(line)
        try:
            return await self._do(typed)
        except RequestFailed as failed:
            self.session.view.notice(str(failed))
        except TimeoutError:
            self.session.view.notice("no answer; try again")
        return True

    async def _do(self, typed: TypedLine) -> bool:
        session, view = self.session, self.session.view
        match typed:
            case TypedLine("", ""):
                pass
            case TypedLine("", text):
                if view.current is None:
                    view.notice("/to NAME first, to say whom you talk to")
                else:
                    await session.write(view.current, text)
            case TypedLine("quit", _):
                return False
            case TypedLine("to", name) if name:
                await session.choose(name)
            case TypedLine("list", pattern):
                body = {"pattern": pattern or "*", "limit": 50}
                answer = await session.client.ask("account.list", body)
                names = (
                    f"{row['name']}{'*' if row['online'] else ''}" for row in answer["accounts"]
                )
                view.notice("accounts (* online): " + " ".join(names))
            case TypedLine("rooms", _):
                answer = await session.client.ask("room.list", {"limit": 50})
                view.notice("rooms: " + " ".join(f"#{row['room']}" for row in answer["rooms"]))
            case TypedLine("create" | "join" | "leave", room) if room:
                await session.room(typed.verb, room)
            case TypedLine("delete", _):
                await session.client.send("account.delete", {})
            case TypedLine("help", _):
                for text in HELP:
                    view.notice(text)
            case _:
                view.notice(f"/{typed.verb} is not known; there are {' '.join(VERBS)}")
        return True


class TerminalClient:
    """Full screen, raw keys, redrawn when something changed."""

    def __init__(self, session: ChatSession, states: list[str]) -> None:
        self._session = session
        self._states = states
        self._doer = Doer(session)
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
            drawing = asyncio.create_task(self._draw_always())
            try:
                while (line := await self._lines.get()) is not None:
                    if not await self._doer.do(line):
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

    async def _draw_always(self) -> None:
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
        """Only the lines that differ, so that nothing flickers."""
        size = shutil.get_terminal_size()
        connection = "online" if self._states[-1] == "connected" else self._states[-1]
        frame = Frame(size.columns, size.lines, self._typed, connection, now_ms(), self._scroll)
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


class Said(NamedTuple):
    """A message that came, or with no sender what the client has to say itself."""

    text: str
    sender: str | None = None
    room: str | None = None


def _text_line(said: Said) -> str:
    if said.sender is None:
        return f"-- {printable(said.text)}"
    where = "" if said.room is None else f"{said.room} "
    return f"{where}{said.sender}: {printable(said.text)}"


def _json_line(said: Said) -> str:
    if said.sender is None:
        return json.dumps({"notice": said.text})
    return json.dumps({"from": said.sender, "room": said.room, "text": said.text})


class PlainClient:
    """Lines in, lines out: for scripts and for terminals that can do nothing else."""

    def __init__(self, session: ChatSession, show: Callable[[Said], str]) -> None:
        self._session = session
        self._show = show
        self._doer = Doer(session)
        self._told = 0
        self._seen: set[str] = set()

    async def run(self) -> None:
        telling = asyncio.create_task(self._tell_always())
        try:
            async for line in lines_of(sys.stdin.buffer):
                if not await self._doer.do(line):
                    return
                self._session.changed.set()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell_always(self) -> None:
        while True:
            self._tell()
            await self._session.changed.wait()
            self._session.changed.clear()

    def _tell(self) -> None:
        view = self._session.view
        for thread in list(view.threads.values()):
            for line in thread.lines.values():
                if line.message_id not in self._seen:
                    self._seen.add(line.message_id)
                    if line.sender != view.me:
                        room = thread.name if thread.is_room else None
                        click.echo(self._show(Said(line.text, line.sender, room)))
        for notice in view.notices[self._told :]:
            click.echo(self._show(Said(notice)))
        self._told = len(view.notices)
        sys.stdout.flush()


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    """The terminal is given back as it was, whatever happens."""
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
