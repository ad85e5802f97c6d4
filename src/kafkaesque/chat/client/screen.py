"""The terminal client's screen: renders a view as lines of text with ANSI colours. Pure except for the
local time zone.

Text of other users is never written to the terminal unfiltered: control characters are replaced.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from rich.cells import cell_len, set_cell_size

from kafkaesque.chat.client.rules.view import ChatView, Line, Thread

LIST_WIDTH_MAX: Final = 22
WIDTH_MIN: Final = 40
HEIGHT_MIN: Final = 8
_RESET, _BOLD, _DIM, _INVERSE = "\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[7m"
_GREEN, _YELLOW, _RED, _CYAN = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[36m"
_MARKS: Final = {
    "sending": "\u2026",
    "queued": "\u2713",
    "delivered": "\u2713\u2713",
    "read": "\u2713\u2713 read",
    "failed": "\u2717",
}
HELP: Final = (
    "/to NAME  open a conversation       /list [PATTERN]  list accounts",
    "/create ROOM  /join ROOM  /leave ROOM  /rooms  rooms",
    "Tab, Shift-Tab  next, previous conversation   PgUp, PgDn  scroll",
    "/delete  delete this account        /quit or Ctrl-C  leave",
)


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """Everything on the screen besides the view."""

    width: int
    height: int
    typed: str
    connection: str
    """online, or the connection's state."""
    now_ms: int
    scroll: int = 0


def draw(view: ChatView, frame: ScreenFrame) -> list[str]:
    """Exactly `height` lines of `width` cells, not counting colour codes."""
    width, height = max(frame.width, WIDTH_MIN), max(frame.height, HEIGHT_MIN)
    body_height = height - 4
    list_width = min(LIST_WIDTH_MAX, width // 3)
    right_width = width - list_width - 3
    left = _threads(view, list_width, body_height)
    right = _messages(view, frame, right_width, body_height)
    rule = _DIM + "\u2502" + _RESET
    lines = [_header(view, frame, width)]
    lines += [f"{one} {rule} {other}" for one, other in zip(left, right, strict=True)]
    lines.append(_status(view, frame, width))
    notice = view.notices[-1] if view.notices else "Tab: next conversation, /help: help"
    lines.append(_DIM + _fit(printable(notice), width) + _RESET)
    lines.append(_input(frame.typed, width))
    return lines


def printable(text: str) -> str:
    """`text` as one line without control characters."""
    return "".join(c if c.isprintable() else " " if c in "\n\t" else "\ufffd" for c in text)


def _fit(text: str, width: int) -> str:
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "\u2026"
    return set_cell_size(text, width)


def _header(view: ChatView, frame: ScreenFrame, width: int) -> str:
    online = frame.connection == "online"
    dot = (_GREEN if online else _RED) + "\u25cf" + _RESET + _INVERSE
    unread = f"  {view.unread} unread" if view.unread else ""
    text = _fit(f" kafkaesque chat   {view.me}{unread}", width - cell_len(frame.connection) - 4)
    return f"{_INVERSE}{text} {dot} {frame.connection} {_RESET}"


def _threads(view: ChatView, width: int, height: int) -> list[str]:
    rows = []
    for thread in view.ordered[:height]:
        count = f" {thread.unread}" if thread.unread else ""
        name = _fit(f" {printable(thread.name)}", width - len(count)) + count
        style = _INVERSE if thread.name == view.current else _BOLD if thread.unread else ""
        rows.append(f"{style}{name}{_RESET}")
    return rows + [" " * width] * (height - len(rows))


def _messages(view: ChatView, frame: ScreenFrame, width: int, height: int) -> list[str]:
    thread = view.threads.get(view.current or "")
    if thread is None:
        text = [_fit(line, width) for line in ("", " /to NAME starts a conversation", "", *HELP)]
        return (text + [" " * width] * height)[:height]
    rows = list(_thread_rows(view, thread, width))
    scroll = min(frame.scroll, max(0, len(rows) - height))
    shown = rows[max(0, len(rows) - height - scroll) : len(rows) - scroll]
    return [" " * width] * (height - len(shown)) + shown


def _thread_rows(view: ChatView, thread: Thread, width: int) -> Iterator[str]:
    for line in thread.lines.values():
        mine = line.sender == view.me
        clock = time.strftime("%H:%M", time.localtime(line.sent_ms / 1000))
        name = printable(line.sender)
        if cell_len(name) > width // 3:
            name = _fit(name, width // 3)
        indent = cell_len(clock) + cell_len(name) + 3
        room = width - indent
        rows = list(_wrapped(line, room))
        mark = _fit_within(f"{_MARKS[line.stage]} {line.note}".strip(), room - 1) if mine else ""
        if mark and cell_len(rows[-1]) + 1 + cell_len(mark) > room:
            rows.append("")
        colour = _RED if line.stage == "failed" else _CYAN if mine else _YELLOW
        for at, row in enumerate(rows):
            first = f"{_DIM}{clock}{_RESET} {colour}{name}{_RESET}: "
            lead = first if at == 0 else " " * indent
            tail = f" {mark}" if mark and at == len(rows) - 1 else ""
            yield f"{lead}{row}{_DIM}{tail}{_RESET}" + " " * (room - cell_len(row) - cell_len(tail))


def _fit_within(text: str, width: int) -> str:
    return text if cell_len(text) <= width else _fit(text, width)


def _wrapped(line: Line, room: int) -> Iterator[str]:
    for paragraph in line.text.split("\n"):
        row = ""
        for word in _words(printable(paragraph), room):
            joined = f"{row} {word}" if row else word
            if cell_len(joined) > room:
                yield row
                row = word
            else:
                row = joined
        yield row


def _words(text: str, room: int) -> Iterable[str]:
    for word in text.split(" "):
        rest = word
        while cell_len(rest) > room:
            part = set_cell_size(rest, room)
            taken = len(part.rstrip()) or 1
            yield rest[:taken]
            rest = rest[taken:]
        yield rest


def _status(view: ChatView, frame: ScreenFrame, width: int) -> str:
    thread = view.threads.get(view.current or "")
    text = "\u2500" * width
    if thread is not None:
        who = f" {printable(thread.name)} "
        if thread.is_room and thread.members:
            who += f"({len(thread.members)} members) "
        if thread.is_typing(frame.now_ms):
            who += "is typing\u2026 "
        text = "\u2500\u2500" + who + "\u2500" * max(0, width - cell_len(who) - 2)
    return _DIM + _fit(text, width) + _RESET


def _input(typed: str, width: int) -> str:
    """The input line. A long line shows its end, where the cursor is."""
    text = printable(typed)
    while cell_len(text) > width - 4:
        text = text[1:]
    return _fit(f"> {text}\u2588", width)
