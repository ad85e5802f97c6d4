"""An event on its way to clients: decoded once, encoded once per wire format."""

from __future__ import annotations

from kafkaesque.client.ports import Received
from kafkaesque.edge.protocol.codec import Encoding, body_from_json
from kafkaesque.edge.protocol.framing import Framing
from kafkaesque.edge.protocol.messages import Event
from kafkaesque.events.gateway import decode_event


class OutgoingEvent:
    """`room` is the key of a room's event, None for an inbox event. Connections must not keep it."""

    __slots__ = ("_event", "_frames", "_position", "_room", "appended_ms", "offset")

    def __init__(self, record: Received, prefix: str, room: str | None) -> None:
        """Raises MalformedEvent if the record is not an event."""
        self._event = decode_event(record.value or b"")
        self._position = f"{prefix}{record.offset}"
        self._room = room
        self._frames: dict[tuple[str, Encoding], bytes] = {}
        self.offset = record.offset
        self.appended_ms = record.timestamp_ms

    def frame_for(self, wire: Framing) -> bytes:
        wire_format = (wire.kind, wire.encoding)
        frame = self._frames.get(wire_format)
        if frame is None:
            event = self._event
            frame = self._frames[wire_format] = wire.encode(
                Event(
                    position=self._position,
                    type=event.type,
                    body=body_from_json(event.body, wire.encoding),
                    re=event.re,
                    at_ms=event.at_ms,
                    room=self._room,
                )
            )
        return frame
