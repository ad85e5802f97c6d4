"""A minimal Kafka client: requests from plain values, answers as plain dictionaries.

For tests that no client library permits: a given API version, the bytes of a batch, two members of a
group in one thread, raw error codes. The codec is `kio`, which is independent of ours, so that an error
in our codec cannot cancel itself out.
"""

from __future__ import annotations

import datetime
import importlib
import io
import itertools
import socket
import struct
import types
import typing
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import kio.schema.errors
import kio.serial

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Disconnected(Exception):
    """The broker closed the connection instead of answering."""


class RawClient:
    """One connection; `call` is one request and its answer."""

    def __init__(self, address: str, client_id: str = "raw", timeout_s: float = 30) -> None:
        host, _, port = address.split(",")[0].rpartition(":")
        self.link = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.client_id = client_id
        self._correlation_ids = itertools.count(1)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.link.close()

    def call(self, api: str, version: int, /, **values: Any) -> dict[str, Any]:
        """One request by its snake_case name (`list_offsets`) and its answer."""
        return self.receive(self.send(api, version, **values))

    def send(self, api: str, version: int, /, **values: Any) -> tuple[str, int, int]:
        """Send without waiting; pass the result to `receive`, in the same order."""
        request = build(entity(api, version, "request"), values)
        correlation_id = next(self._correlation_ids)
        self.send_frame(request_bytes(request, correlation_id, self.client_id))
        return api, version, correlation_id

    def receive(self, sent: tuple[str, int, int]) -> dict[str, Any]:
        api, version, correlation_id = sent
        payload = entity(api, version, "response")
        buffer = self.receive_frame()
        header, used = kio.serial.entity_reader(payload.__header_schema__)(buffer, 0)
        assert header.correlation_id == correlation_id
        answer, used_by_body = kio.serial.entity_reader(payload)(buffer, used)
        assert used + used_by_body == len(buffer), "trailing bytes in the answer"
        plain_answer = plain(answer)
        assert isinstance(plain_answer, dict)
        return plain_answer

    def send_frame(self, body: bytes) -> None:
        self.link.sendall(struct.pack(">i", len(body)) + body)

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            try:
                more = self.link.recv(size - len(data))
            except ConnectionResetError as error:
                raise Disconnected from error
            if not more:
                raise Disconnected
            data += more
        return bytes(data)


def entity(api: str, version: int, kind: str) -> Any:
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{kind}")
    name = "".join(word.capitalize() for word in api.split("_")) + kind.capitalize()
    return getattr(module, name)


def request_bytes(request: Any, correlation_id: int, client_id: str) -> bytes:
    """Header and body of a request, without the length that frames it."""
    header = request.__header_schema__(
        request_api_key=request.__api_key__,
        request_api_version=request.__version__,
        correlation_id=correlation_id,
        client_id=client_id,
    )
    out = io.BytesIO()
    kio.serial.entity_writer(type(header))(out, header)
    kio.serial.entity_writer(type(request))(out, request)
    return out.getvalue()


def build(kind: Any, values: dict[str, Any]) -> Any:
    """An entity from plain values; other fields get their defaults, or the zero of their type."""
    hints = typing.get_type_hints(kind)
    known = {field.name for field in fields(kind)}
    if not known >= set(values):
        raise TypeError(f"{kind.__name__} has no {set(values) - known}")
    made = {}
    for field in fields(kind):
        kafka_type = field.metadata.get("kafka_type")
        if field.name in values:
            made[field.name] = _convert(hints[field.name], kafka_type, values[field.name])
        elif field.default is MISSING and field.default_factory is MISSING:
            made[field.name] = _zero(hints[field.name], kafka_type)
    return kind(**made)


def _convert(hint: Any, kafka_type: str | None, value: Any) -> Any:
    if value is None:
        return None
    if kafka_type is not None and kafka_type.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    if kafka_type is not None and kafka_type.startswith("datetime"):
        return EPOCH + datetime.timedelta(milliseconds=value)
    if kafka_type == "error_code":
        return kio.schema.errors.ErrorCode(value)
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple:
        item = typing.get_args(inner)[0]
        return tuple(_convert(item, kafka_type, one) for one in value)
    if is_dataclass(inner) and isinstance(value, dict):
        return build(inner, value)
    return value


def _zero(hint: Any, kafka_type: str | None) -> Any:
    if _without_none(hint) is not hint:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    match kafka_type:
        case "string":
            return ""
        case "bool":
            return False
        case "bytes" | "records":
            return b""
        case None:
            return build(hint, {})
    return _convert(hint, kafka_type, 0)


def _without_none(hint: Any) -> Any:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        (inner,) = (arg for arg in typing.get_args(hint) if arg is not types.NoneType)
        return inner
    return hint


def plain(value: Any) -> Any:
    """Dictionaries, lists, numbers and strings; times as milliseconds, error codes as integers."""
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    if isinstance(value, datetime.timedelta):
        return round(value.total_seconds() * 1000)
    if isinstance(value, datetime.datetime):
        return round((value - EPOCH).total_seconds() * 1000)
    if isinstance(value, kio.schema.errors.ErrorCode):
        return value.value
    return value
