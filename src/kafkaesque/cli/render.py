"""Output of commands: tables, documents, notes. Imports no client library.

The same value is shown in three ways: a terminal gets a table with colours and grouped digits, a pipe
gets the same columns as plain aligned text with exact numbers, and `--json` prints the value itself.
Control characters are never sent to a terminal; see `terminal_text`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import click

from kafkaesque.cli.terminal_text import LINES, visible, visible_json
from kafkaesque.model.sizes import human_bytes

Kind = Literal["text", "count", "bytes", "state"]
Row = Mapping[str, Any]

_STATE_STYLES = {
    "ok": "green",
    "stable": "green",
    "online": "green",
    "running": "green",
    "paused": "yellow",
    "starting": "yellow",
    "exited": "red",
    "warn": "yellow",
    "empty": "dim",
    "rebalancing": "yellow",
    "fail": "bold red",
    "dead": "red",
    "offline": "bold red",
}
_ABSENT = "-"


@dataclass(frozen=True)
class Column:
    """One column: the key of the value in a row, its title, and how to show it."""

    key: str
    title: str
    kind: Kind = "text"
    style: str = ""

    @property
    def is_numeric(self) -> bool:
        return self.kind in ("count", "bytes")


def iso_time(timestamp_ms: int) -> str:
    """Milliseconds since the epoch as ISO 8601 in UTC, to the millisecond."""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def exact(value: Any) -> str:
    """A cell for a pipe: no grouping, no units, lists with commas, control characters escaped.

    Escaped in pipes too: a line break would split the row, and `| head` prints on a terminal.
    """
    if value is None or value == "":
        return _ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return visible(",".join(str(item) for item in value)) or _ABSENT
    return visible(str(value))


def friendly(value: Any, kind: Kind) -> str:
    """A cell for a person."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if kind == "count":
            return f"{value:,}"
        if kind == "bytes":
            return human_bytes(value)
    return exact(value)


def plain_table(columns: Sequence[Column], rows: Sequence[Row]) -> str:
    """Aligned text under upper-case titles; cells are never cut or wrapped, so `awk` can parse it."""
    cells = [[column.title.upper().replace(" ", "-") for column in columns]]
    cells += [[exact(row.get(column.key)) for column in columns] for row in rows]
    widths = [max(len(line[index]) for line in cells) for index in range(len(columns))]
    lines = []
    for line in cells:
        padded = [
            text.rjust(width) if column.is_numeric else text.ljust(width)
            for text, width, column in zip(line, widths, columns, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


class Screen:
    """The output of one command. Standard output has only the result."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty()

    def document(self, value: Any, show: Callable[[], None]) -> None:
        """The result: `value` as one JSON document, or the text that `show` prints."""
        if self.as_json:
            text = json.dumps(value, ensure_ascii=False, indent=2 if self.is_terminal else None)
            click.echo(visible_json(text) if self.is_terminal else text)
        else:
            show()

    def table(self, columns: Sequence[Column], rows: Sequence[Row], empty: str = "") -> None:
        if not rows:
            self.note(empty)
        elif self.is_terminal:
            _print_rich_table(columns, rows)
        else:
            click.echo(plain_table(columns, rows))

    def fields(self, pairs: Sequence[tuple[str, Any]]) -> None:
        """A short list of names and values."""
        width = max(len(name) for name, _ in pairs)
        for name, value in pairs:
            text = friendly(value, "count") if self.is_terminal else exact(value)
            click.echo(f"{click.style(name.ljust(width), dim=True)}  {text}")

    def line(self, text: str = "") -> None:
        """Plain text; a pipe gets it unchanged."""
        self.styled(visible(text, LINES) if self.is_terminal else text)

    def styled(self, text: str) -> None:
        """Text with styles of `click.style`. The caller makes text from a cluster visible first."""
        if not self.as_json:
            click.echo(text)

    def heading(self, text: str) -> None:
        self.styled(click.style(visible(text), bold=True))

    def note(self, text: str) -> None:
        """A remark on standard error; omitted with --json."""
        if text and not self.as_json:
            click.echo(click.style(visible(text, LINES), dim=True), err=True)

    def warn(self, text: str) -> None:
        label = click.style("warning:", fg="yellow", bold=True)
        click.echo(f"{label} {visible(text, LINES)}", err=True)


def _print_rich_table(columns: Sequence[Column], rows: Sequence[Row]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold dim")
    for column in columns:
        table.add_column(
            column.title,
            justify="right" if column.is_numeric else "left",
            no_wrap=column.is_numeric or column.kind == "state",
            overflow="fold",
        )
    for row in rows:
        line = []
        for column in columns:
            text = friendly(row.get(column.key), column.kind)
            style = _STATE_STYLES.get(text.lower(), "") if column.kind == "state" else column.style
            line.append(Text(text, style="dim" if text == _ABSENT else style))
        table.add_row(*line)
    Console(highlight=False, soft_wrap=False).print(table)
