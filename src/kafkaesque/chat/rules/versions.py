"""Translates commands of later application versions to v1, the version of the home partitions. Pure.

State has one home whatever a client's version, so versions differ only in vocabulary. The back ends of
a later version translate and forward; the v1 back ends answer the client.

v2: `say {to, text}` for accounts and `#rooms` alike, instead of message.send and room.post.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

HOME_VERSION = "v1"
VERSIONS = (HOME_VERSION, "v2")

_decoder = msgspec.json.Decoder(dict[str, Any])
_encoder = msgspec.json.Encoder()


def to_home_version(version: str, value: bytes | None) -> bytes | None:
    """The command in v1. A malformed command is forwarded unchanged; v1 answers it with an error."""
    if version != "v2":
        return value
    try:
        command = _decoder.decode(value or b"")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return value
    body = command.get("body")
    if command.get("op") != "say" or not isinstance(body, Mapping):
        return value
    to = body.get("to")
    if isinstance(to, str) and to.startswith("#"):
        rest = {name: held for name, held in body.items() if name != "to"}
        return _encoder.encode({"op": "room.post", "body": {"room": to[1:], **rest}})
    return _encoder.encode({"op": "message.send", "body": body})
