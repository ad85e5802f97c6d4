"""The envelope of every event: one JSON object around a typed body.

    {"id": "...", "kind": "social.post", "version": 1, "time_ms": 1790000000000,
     "source": "bluesky", "body": {...}}

`id` identifies the event: a consumer that drops records with an id it has seen turns at-least-once
into exactly-once. `version` is increased when a reader of the old version would misread the body. A new
optional field needs no new version, because readers ignore unknown fields.

This module encodes and decodes envelopes. The bodies are in their own modules.
"""

from __future__ import annotations

from typing import ClassVar, Generic, TypeVar

import msgspec

from kafkaesque.model.errors import check
from kafkaesque.model.ids import TimestampMs

EVENT_SIZE_BYTES_MAX = 900_000
"""Fits in a batch of any Kafka with the default `max.message.bytes` (1,048,588)."""


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """Base of event bodies. Subclasses define KIND and VERSION."""

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = 1


B = TypeVar("B", bound=Body)
B_co = TypeVar("B_co", bound=Body, covariant=True)


class EventError(Exception):
    """Bytes that this reader cannot use as an event."""


class MalformedEvent(EventError):
    """Not JSON, not an envelope, or a body that breaks its own schema."""


class UnknownEvent(EventError):
    """An envelope of a kind or version that the reader's vocabulary lacks."""

    def __init__(self, kind: str, version: int) -> None:
        super().__init__(f"unknown event kind {kind!r}, version {version}")
        self.kind = kind
        self.version = version


class Envelope(msgspec.Struct, Generic[B_co], frozen=True):
    """One event. `cause` is the id of the event that caused it, if any."""

    id: str
    time_ms: TimestampMs
    source: str
    body: B_co
    cause: str | None = None

    @property
    def kind(self) -> str:
        return self.body.KIND


class _Written(msgspec.Struct, frozen=True, omit_defaults=True):
    """The envelope as stored in the log; the body is decoded once its kind is known."""

    id: str
    kind: str
    version: int
    time_ms: int
    source: str
    body: msgspec.Raw
    cause: str | None = None


_encoder = msgspec.json.Encoder()
_envelopes = msgspec.json.Decoder(_Written)


class Vocabulary:
    """The kinds of events that a topic or a service uses."""

    def __init__(self, *bodies: type[Body]) -> None:
        self._decoders: dict[tuple[str, int], msgspec.json.Decoder[Body]] = {}
        for body in bodies:
            key = (body.KIND, body.VERSION)
            check(key not in self._decoders, f"two bodies have kind and version {key}")
            self._decoders[key] = msgspec.json.Decoder(body)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(kind for kind, _ in self._decoders)

    def decode(self, data: bytes) -> Envelope[Body]:
        """Raises MalformedEvent or UnknownEvent, and nothing else, for bytes it cannot decode."""
        try:
            written = _envelopes.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEvent(str(error)) from None
        decoder = self._decoders.get((written.kind, written.version))
        if decoder is None:
            raise UnknownEvent(written.kind, written.version)
        try:
            body = decoder.decode(written.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise MalformedEvent(f"{written.kind} {written.id!r}: {error}") from None
        return Envelope(
            written.id, TimestampMs(written.time_ms), written.source, body, written.cause
        )


def encode(event: Envelope[Body]) -> bytes:
    """Raises MalformedEvent if the event is too large for a default Kafka."""
    body = event.body
    data = _encoder.encode(
        _Written(
            id=event.id,
            kind=body.KIND,
            version=body.VERSION,
            time_ms=event.time_ms,
            source=event.source,
            body=msgspec.Raw(_encoder.encode(body)),
            cause=event.cause,
        )
    )
    if len(data) > EVENT_SIZE_BYTES_MAX:
        raise MalformedEvent(
            f"{body.KIND} {event.id!r} takes {len(data)} bytes; at most {EVENT_SIZE_BYTES_MAX} are allowed"
        )
    return data
