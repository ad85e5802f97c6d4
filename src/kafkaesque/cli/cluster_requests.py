"""Requests about the cluster itself that librdkafka does not have for Python, to any Kafka.

Plaintext only, as all of `raw_kafka`. They go to the controller, as far as clients are told who that
is; any broker that is not forwards them.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CannotConnect, Failure, NotFound
from kafkaesque.cli.raw_kafka import RawKafka
from kafkaesque.model.errors import ErrorCode, ProtocolError
from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)


class Broker(Protocol):
    """As the client library's metadata has it."""

    @property
    def id(self) -> int: ...

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


_MISSING = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_ID_NOT_REGISTERED})


def ask_controller(connection: Connection, request: Request, answer: type[R], doing: str) -> R:
    """The answer in the newest version that both sides have; `doing` completes "cannot ..."."""
    metadata = connection.metadata()
    node = metadata.brokers.get(metadata.controller_id) or next(iter(metadata.brokers.values()))
    return ask_broker(connection, node, request, answer, doing)


def ask_broker(
    connection: Connection, node: Broker, request: Request, answer: type[R], doing: str
) -> R:
    """The same of a certain broker."""
    try:
        with RawKafka(node.host, node.port, connection.timeout_s) as raw:
            return _call(raw, request, answer, doing)
    except (OSError, ProtocolError) as problem:
        raise CannotConnect(
            f"cannot {doing}: broker {node.id} at {node.host}:{node.port} did not answer: {problem}"
        ) from None


def _call(raw: RawKafka, request: Request, answer: type[R], doing: str) -> R:
    known, offered = request.VERSIONS, raw.api_versions().apis.get(request.API_KEY)
    if offered is None or offered.highest < known.low:
        raise Failure(f"cannot {doing}: this Kafka has no such request")
    version = min(known.high, offered.highest)
    is_flexible = version >= request.FLEXIBLE_SINCE
    body = b"".join(encode(request, version))
    reader = raw.call(request.API_KEY, version, body, flexible=is_flexible)
    if is_flexible:
        reader.tags()
    return decode(answer, memoryview(reader.rest()), version, 0)


def error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def refusal(code: int, message: str | None, doing: str) -> Failure:
    """The `Failure` that fits a code of Kafka's."""
    kind = NotFound if code in _MISSING else Failure
    name = error_name(code)
    return kind(f"cannot {doing}: {message} ({name})" if message else f"cannot {doing}: {name}")
