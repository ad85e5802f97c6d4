"""Finds the handler of each request, and encodes the answers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, NamedTuple

from kafkaesque.broker.cluster.rules.errors import ControllerMoved
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import Answer, Forwarded, Handler, Later
from kafkaesque.broker.server.handlers.api_versions import unsupported_version
from kafkaesque.broker.server.stats import ApiStats
from kafkaesque.model.errors import KafkaError, NotController, ProtocolError
from kafkaesque.wire.api import (
    REQUEST_HEADER_BYTES_MIN,
    ApiKey,
    UnsupportedVersion,
    decode_request_header,
)
from kafkaesque.wire.codec import (
    UNREADABLE,
    Buffers,
    encode_response_frame,
    explain_unreadable,
    message_reader,
    response_framer,
)
from kafkaesque.wire.table import Response

FORWARDED_FROM = "another broker"

_api_key = struct.Struct(">h").unpack_from
_make_tuple = tuple.__new__


Framer = Callable[[Any, int], tuple[Buffers, int]]
"""Encodes an answer with a correlation id. Returns the frame and its size."""


class Route:
    """One API in one version: everything that its requests need, looked up once."""

    __slots__ = ("_version", "framers", "handler", "read", "stats")

    def __init__(self, handler: Handler[Any], version: int, stats: ApiStats) -> None:
        self._version = version
        self.handler = handler
        self.read = message_reader(handler.request, version)
        self.stats = stats
        self.framers: dict[type[Response], Framer] = {}
        """Found so far, by the class of the answer."""

    def find_framer(self, response: type[Response]) -> Framer:
        framer = self.framers[response] = response_framer(response, self._version)
        return framer


class Begun(NamedTuple):
    """A request in progress."""

    route: Route
    correlation_id: int
    overlaps: bool
    later: Later


Served = tuple[Buffers, int, Begun | None]
"""The bytes of the answer (none if the request has no answer), their number, and the request in
progress if the answer comes later."""


class Dispatcher:
    """Finds the handler of each request."""

    __slots__ = ("_context", "_handlers", "_overlapping", "_routes")

    def __init__(self, context: Context, handlers: Mapping[int, Handler[Any]]) -> None:
        self._context = context
        self._handlers = handlers
        self._overlapping = frozenset(key for key, found in handlers.items() if found.overlaps)
        self._routes: dict[tuple[int, int], Route] = {}

    def overlaps(self, frame: memoryview) -> bool:
        """Returns whether the request in `frame` may begin while one of its kind still waits."""
        return _api_key(frame)[0] in self._overlapping

    def serve(self, frame: memoryview, client_host: str, started: float) -> Served:
        """Decodes a request, starts it, and answers it if it is done at once.

        A frame has at least REQUEST_HEADER_BYTES_MIN bytes. Raises ProtocolError if the connection
        must be closed. `started` is on the clock `time.monotonic`. (uvloop's own time does not
        advance while a request is handled.)
        """
        try:
            header = decode_request_header(frame)
        except UnsupportedVersion as error:
            return self._unsupported_version(error, len(frame), started)
        key, version, correlation_id, client_id, body_position = header
        route = self._routes.get((key, version)) or self._find(key, version)
        handler = route.handler
        try:
            request = route.read(frame, body_position)
        except UNREADABLE as error:
            raise explain_unreadable(handler.request, version, error) from error
        call = _make_tuple(Call, (version, client_id, client_host))
        answer: Answer | Later
        if handler.at_controller and client_host != FORWARDED_FROM:
            answer = self._at_controller(handler, request, call, bytes(frame))
        else:
            answer = handler.handle(self._context, request, call)
        if isinstance(answer, Response):
            made = type(answer)
            framer = route.framers.get(made) or route.find_framer(made)
            output, size_bytes = framer(answer, correlation_id)
        elif answer is None:
            output, size_bytes = [], 0
        else:
            return [], 0, Begun(route, correlation_id, handler.overlaps, answer)
        route.stats.answered(len(frame), size_bytes, monotonic() - started)
        return output, size_bytes, None

    def _find(self, key: int, version: int) -> Route:
        found = self._handlers.get(key)
        if found is None or not found.versions[0] <= version <= found.versions[1]:
            raise ProtocolError(f"API {key} v{version} is not served here")
        route = self._routes[key, version] = Route(found, version, self._context.stats.api(key))
        return route

    def _unsupported_version(
        self, error: UnsupportedVersion, frame_size_bytes: int, started: float
    ) -> Served:
        """Answers ApiVersions with an unsupported version (KIP-511): the only request that a client
        sends before it has seen our versions."""
        if error.api_key != ApiKey.API_VERSIONS:
            raise error
        answer = unsupported_version(self._context)
        output, size_bytes = encode_response_frame(answer, 0, error.correlation_id)
        stats = self._context.stats.api(error.api_key)
        stats.answered(frame_size_bytes, size_bytes, monotonic() - started)
        return output, size_bytes, None

    def finish(
        self, begun: Begun, answer: Answer | Forwarded, frame_size_bytes: int, started: float
    ) -> tuple[Buffers, int]:
        """Encodes the answer of a request that `serve` began."""
        output: Buffers = []
        size_bytes = 0
        route = begun.route
        if isinstance(answer, Forwarded):
            output, size_bytes = [answer.frame], len(answer.frame)
        elif answer is not None:
            made = type(answer)
            framer = route.framers.get(made) or route.find_framer(made)
            output, size_bytes = framer(answer, begun.correlation_id)
        route.stats.answered(frame_size_bytes, size_bytes, monotonic() - started)
        return output, size_bytes

    async def _at_controller(
        self, handler: Handler[Any], request: Any, call: Call, frame: bytes
    ) -> Answer | Forwarded:
        """Returns the answer of this node if it is the controller, or of the next controller if
        it moves before anything is done. Raises CloseConnection if there is none; the client
        retries."""
        try:
            if self._context.cluster.controller_log.is_leader:
                answer = handler.handle(self._context, request, call)
                return answer if answer is None or isinstance(answer, Response) else await answer
        except ControllerMoved:
            pass
        try:
            return Forwarded(await self._context.cluster.forward(frame))
        except KafkaError as error:
            raise CloseConnection(f"no controller answers: {error}") from error

    async def serve_forwarded(self, frame: bytes) -> bytes:
        """Returns the response frame for a request that another broker forwarded."""
        started = monotonic()
        if len(frame) < REQUEST_HEADER_BYTES_MIN:
            raise ProtocolError("request header is truncated")
        # Copied, because Produce stamps its batches in place.
        output, _, begun = self.serve(memoryview(bytearray(frame)), FORWARDED_FROM, started)
        if begun is not None:
            try:
                answer = await begun.later
            except ControllerMoved as moved:
                raise NotController(
                    str(moved)
                ) from None  # the forwarding broker tries the next one
            output, _ = self.finish(begun, answer, len(frame), started)
        return b"".join(output)


def api_ranges(handlers: Mapping[int, Handler[Any]]) -> list[tuple[int, int, int]]:
    """Returns (key, lowest, highest version) of every API, for ApiVersions."""
    return [(key, found.advertised_from, found.versions[1]) for key, found in handlers.items()]
