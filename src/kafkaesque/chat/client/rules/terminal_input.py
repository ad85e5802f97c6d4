"""Terminal input: bytes of a raw terminal to keys, and a typed line to a slash command. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

VERBS: Final = ("to", "list", "create", "join", "leave", "rooms", "delete", "help", "quit")
_SEQUENCES: Final = {
    "\x1b[5~": "pageup",
    "\x1b[6~": "pagedown",
    "\x1b[Z": "previous",
    "\x1b[A": "previous",
    "\x1b[B": "next",
}


@dataclass(frozen=True, slots=True)
class TypedLine:
    """A line that the user entered. `verb` is empty for plain text."""

    verb: str
    rest: str


def parse_line(line: str) -> TypedLine:
    text = line.strip()
    if not text.startswith("/"):
        return TypedLine("", text)
    verb, _, rest = text[1:].partition(" ")
    return TypedLine(verb.lower(), rest.strip())


class Keyboard:
    """Decodes bytes of a raw terminal to keys: single characters, or names such as `enter`."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[str]:
        """The keys in `data`. A character that the read cut in two waits for its other half."""
        self._rest += data
        try:
            text, self._rest = self._rest.decode(), b""
        except UnicodeDecodeError as error:
            end = error.start if len(self._rest) - error.start < 4 else len(self._rest)
            text, self._rest = self._rest[:end].decode(errors="ignore"), self._rest[end:]
        keys: list[str] = []
        while text:
            key, text = _cut(text)
            if key:
                keys.append(key)
        return keys


def _cut(text: str) -> tuple[str, str]:
    for sequence, name in _SEQUENCES.items():
        if text.startswith(sequence):
            return name, text[len(sequence) :]
    if text.startswith("\x1b["):
        # An unknown key: skip to the letter that ends its sequence.
        end = next((at for at in range(2, len(text)) if text[at].isalpha() or text[at] == "~"), 2)
        return "", text[end + 1 :]
    names = {"\r": "enter", "\n": "enter", "\x7f": "erase", "\x08": "erase", "\t": "next",
             "\x03": "quit", "\x04": "quit", "\x15": "clear", "\x1b": ""}  # fmt: skip
    first = text[0]
    if first in names:
        return names[first], text[1:]
    return first if first.isprintable() else "", text[1:]
