"""From a frame to its handler and from the answer to bytes. The one table of APIs."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from time import monotonic
from typing import Any

from kafkaesque.broker.context import Context
from kafkaesque.broker.handler import (
    Answer,
    Call,
    CloseConnection,
    Forwarded,
    Handler,
    Later,
)
from kafkaesque.broker.handlers import load_handlers
from kafkaesque.broker.handlers.api_versions import unsupported_version
from kafkaesque.model.errors import KafkaError, ProtocolError
from kafkaesque.wire.api import ApiKey, RequestHeader, UnsupportedVersion, decode_request_header
from kafkaesque.wire.codec import Buffers, decode, encode_response_frame
from kafkaesque.wire.table import Response

FORWARDED_FROM = "another broker"

_api_key = struct.Struct(">h").unpack_from
_make_tuple = tuple.__new__


class Dispatcher:
    """Finds the handler of each request."""

    __slots__ = ("_context", "_handlers", "_overlapping", "_stats")

    def __init__(self, context: Context, handlers: Mapping[int, Handler[Any]]) -> None:
        self._context = context
        self._handlers = handlers
        self._stats = context.stats
        self._overlapping = frozenset(key for key, found in handlers.items() if found.overlaps)

    def overlaps(self, frame: memoryview) -> bool:
        """Whether the request in `frame` may begin while one of its kind still waits."""
        return _api_key(frame)[0] in self._overlapping

    def begin(
        self, frame: memoryview, client_host: str
    ) -> tuple[RequestHeader, bool, Answer | Later]:
        """Decode a request and start it: (header, overlaps, answer or what will give it).

        ProtocolError where the connection must be closed.
        """
        try:
            header = decode_request_header(frame)
        except UnsupportedVersion as error:
            if error.api_key != ApiKey.API_VERSIONS:
                raise
            # KIP-511: the one request whose version a client cannot know yet.
            header = RequestHeader(error.api_key, 0, error.correlation_id, None, 0)
            return header, False, unsupported_version(self._context)
        found = self._handlers.get(header.api_key)
        if found is None or not found.versions[0] <= header.api_version <= found.versions[1]:
            raise ProtocolError(f"API {header.api_key} v{header.api_version} is not served here")
        request = decode(found.request, frame, header.api_version, header.body_position)
        if found.at_controller and not self._context.cluster.leads:
            return header, found.overlaps, self._forward(bytes(frame))
        call = _make_tuple(Call, (header.api_version, header.client_id, client_host))
        return header, found.overlaps, found.handle(self._context, request, call)

    async def _forward(self, frame: bytes) -> Forwarded:
        """Let the controller answer. CloseConnection if there is none: the client asks again."""
        try:
            return Forwarded(await self._context.cluster.forward(frame))
        except KafkaError as error:
            raise CloseConnection(f"no controller answers: {error}") from error

    async def serve_forwarded(self, frame: bytes) -> bytes:
        """The response frame to a request that another broker passed on."""
        started = monotonic()
        # A copy of our own: Produce stamps its batches where they lie.
        header, _, begun = self.begin(memoryview(bytearray(frame)), FORWARDED_FROM)
        answer = begun if begun is None or isinstance(begun, Response) else await begun
        output, _ = self.finish(header, answer, len(frame), started)
        return b"".join(output)

    def finish(
        self,
        header: RequestHeader,
        answer: Answer | Forwarded,
        frame_size_bytes: int,
        started: float,
    ) -> tuple[Buffers, int]:
        """The bytes of an answer, none for a request that has no answer, and their number.

        `started` is on the clock `time.monotonic`. (uvloop's own time stands still while a request
        is answered.)
        """
        output: Buffers = []
        size_bytes = 0
        if isinstance(answer, Forwarded):
            output, size_bytes = [answer.frame], len(answer.frame)
        elif answer is not None:
            output, size_bytes = encode_response_frame(
                answer, header.api_version, header.correlation_id
            )
        stats = self._stats.api(header.api_key)
        stats.received_bytes += frame_size_bytes
        stats.sent_bytes += size_bytes
        stats.latency.observe(monotonic() - started)
        return output, size_bytes


def api_ranges(handlers: Mapping[int, Handler[Any]]) -> list[tuple[int, int, int]]:
    """(key, lowest, highest version) of every API, as ApiVersions tells it."""
    return [(key, found.advertised_from, found.versions[1]) for key, found in handlers.items()]


__all__ = ["Dispatcher", "api_ranges", "load_handlers"]
