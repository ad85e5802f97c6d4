"""Fenced code of a document, by the heading above it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
GUIDES = ROOT / "docs" / "guides"


class Snippet(NamedTuple):
    heading: str
    language: str
    text: str


def snippets(document: Path) -> list[Snippet]:
    found, heading = [], ""
    pattern = re.compile(r"^#+ ([^\n]+)$|^( *)```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
    for match in pattern.finditer(document.read_text()):
        if match[1]:
            heading = match[1]
            continue
        indent = match[2]
        lines = [line.removeprefix(indent) for line in match[4].splitlines()]
        found.append(Snippet(heading, match[3], "\n".join(lines) + "\n"))
    return found


def only(document: Path, language: str, heading: str | None = None) -> Snippet:
    (snippet,) = (
        item
        for item in snippets(document)
        if item.language == language and heading in (None, item.heading)
    )
    return snippet
