"""Encodes messages as JSON or msgpack, and back. On TCP the frame carries the opcode and the payload; on
WebSocket a message is the pair `[opcode, payload]`.

Bodies are opaque. JSON bodies are passed through unchanged; msgpack bodies are converted from and to
JSON, which the log stores.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.messages import MESSAGES, OPCODES, Message, Opcode

_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OverflowError)


class Encoding(Enum):
    JSON = "json"
    MSGPACK = "msgpack"


_json = msgspec.json.Encoder()
_msgpack = msgspec.msgpack.Encoder()
_json_decoders = {opcode: msgspec.json.Decoder(kind) for opcode, kind in MESSAGES.items()}
_msgpack_decoders = {opcode: msgspec.msgpack.Decoder(kind) for opcode, kind in MESSAGES.items()}
_json_pair = msgspec.json.Decoder(tuple[int, msgspec.Raw])
_msgpack_pair = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def encode_payload(message: Message, encoding: Encoding) -> bytes:
    """The message's `body` must be in this encoding, or empty."""
    message = _with_body(message, encoding)
    return _json.encode(message) if encoding is Encoding.JSON else _msgpack.encode(message)


def encode_pair(message: Message, encoding: Encoding) -> bytes:
    """A whole WebSocket message."""
    payload = encode_payload(message, encoding)
    opcode = int(OPCODES[type(message)])
    if encoding is Encoding.JSON:
        return b"[%d,%b]" % (opcode, payload)
    return _msgpack.encode((opcode, msgspec.Raw(payload)))


def decode_payload(opcode: int, payload: bytes | msgspec.Raw, encoding: Encoding) -> Message:
    """Raises Violation for an unknown opcode or an invalid payload."""
    known = MESSAGES.get(opcode)  # type: ignore[call-overload]
    if known is None:
        raise Violation(CloseCode.BAD_OPCODE, f"unknown opcode {opcode}")
    decoders: Any = _json_decoders if encoding is Encoding.JSON else _msgpack_decoders
    try:
        message: Message = decoders[opcode].decode(payload)
    except _DECODE_ERRORS as error:
        name = Opcode(opcode).name
        raise Violation(CloseCode.BAD_FRAME, f"{name}: {error}") from None
    return message


def decode_pair(data: bytes, encoding: Encoding) -> Message:
    decoder: Any = _json_pair if encoding is Encoding.JSON else _msgpack_pair
    try:
        opcode, payload = decoder.decode(data)
    except _DECODE_ERRORS as error:
        raise Violation(CloseCode.BAD_FRAME, str(error)) from None
    return decode_payload(opcode, payload, encoding)


def sniff_encoding(payload: bytes) -> Encoding:
    """The encoding of a TCP connection's first payload: a JSON object begins with `{` or white space."""
    return Encoding.JSON if payload[:1] in (b"{", b" ", b"\t", b"\n", b"\r") else Encoding.MSGPACK


def body_to_json(body: msgspec.Raw, encoding: Encoding) -> msgspec.Raw:
    """Converts a client's body to the log's JSON. Raises Violation if it is invalid."""
    data = bytes(body)
    try:
        if encoding is Encoding.JSON:
            # A body inside a decoded message is well-formed, but its strings may be invalid UTF-8.
            data.decode()
            return msgspec.Raw(data or b"{}")
        value = msgspec.msgpack.decode(data) if data else {}
        return msgspec.Raw(_json.encode(value))
    except (*_DECODE_ERRORS, TypeError, ValueError) as error:
        raise Violation(CloseCode.BAD_FRAME, f"invalid body: {error}") from None


def body_from_json(body: msgspec.Raw, encoding: Encoding) -> msgspec.Raw:
    """Converts a body of the log for a client. Bodies in the log were checked when they were written."""
    if encoding is Encoding.JSON:
        return body
    return msgspec.Raw(_msgpack.encode(msgspec.json.decode(body)))


def _with_body(message: Message, encoding: Encoding) -> Message:
    """Replaces an empty body, the default, by an empty object."""
    body = getattr(message, "body", None)
    if body is not None and not bytes(body):
        empty = b"{}" if encoding is Encoding.JSON else b"\x80"
        return msgspec.structs.replace(message, body=msgspec.Raw(empty))
    return message
