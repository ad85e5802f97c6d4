"""The text form of a message, and its conversion to and from a record.

{"Header": "header", "Key": "124", "Body": "Hello World!"}, with Header and Key optional. Any other
text is the body itself.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import NamedTuple

from kafkaesque.broker.text.rules.commands import BadCommand

HEADER_NAME = "Header"
"""The name in the record of a header that is a single text."""
_FIELDS = frozenset((HEADER_NAME, "Key", "Body"))

RecordHeaders = tuple[tuple[str, bytes | None], ...]


class TextMessage(NamedTuple):
    key: bytes | None
    body: bytes
    headers: RecordHeaders


def read_message(text: str) -> TextMessage:
    """Raises BadCommand for an object of this form with an invalid field."""
    found = _our_object(text)
    if found is None:
        return TextMessage(None, text.encode(), ())
    key = found.get("Key")
    if isinstance(key, bool) or not isinstance(key, str | int | float | None):
        raise BadCommand("Key must be a text or a number")
    return TextMessage(
        None if key is None else str(key).encode(),
        _as_bytes(found["Body"]),
        _headers(found.get(HEADER_NAME)),
    )


def _our_object(text: str) -> dict[str, object] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(found, dict) and "Body" in found and found.keys() <= _FIELDS:
        return found
    return None


def _headers(header: object) -> RecordHeaders:
    if header is None:
        return ()
    if isinstance(header, dict):
        return tuple((name, _as_bytes(value)) for name, value in header.items())
    return ((HEADER_NAME, _as_bytes(header)),)


def _as_bytes(value: object) -> bytes:
    """A text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value.encode(errors="replace")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def show_message(
    key: bytes | None, body: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> str:
    """One line of JSON, whatever the bytes are; bytes that are not UTF-8 appear as base64."""
    shown: dict[str, object] = {}
    if len(headers) == 1 and headers[0][0] == HEADER_NAME:
        _put(shown, HEADER_NAME, headers[0][1])
    elif headers:
        inner: dict[str, object] = {}
        for name, value in headers:
            _put(inner, name, value)
        shown[HEADER_NAME] = inner
    if key is not None:
        _put(shown, "Key", key)
    _put(shown, "Body", body)
    # Escaped, so that no control character reaches a terminal and the line is not broken.
    return json.dumps(shown, ensure_ascii=True)


def _put(shown: dict[str, object], name: str, value: bytes | None) -> None:
    if value is None:
        shown[name] = None
        return
    try:
        shown[name] = value.decode()
    except UnicodeDecodeError:
        shown[f"{name}Base64"] = base64.b64encode(value).decode()
