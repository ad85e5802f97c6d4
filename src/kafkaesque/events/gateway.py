"""The topics between gateways and back ends: their records and headers.

Clients' commands go to `gw.cmd.<version>`, events for a user to `gw.inbox`, events of a room to
`gw.rooms`, replies to queries to `gw.reply`. Keys are UTF-8 names. Bodies are opaque: a gateway forwards
them without looking inside.

A client resumes from the position of an inbox record (topic id, partition, offset). `gw.inbox` must
therefore never be resized, and every writer must partition keys as `partition_of` does, which is
librdkafka's default.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import msgspec

from kafkaesque.events.envelope import EVENT_SIZE_BYTES_MAX, MalformedEvent
from kafkaesque.events.topics import TopicSpec
from kafkaesque.model.ids import PartitionIndex, TimestampMs

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS

COMMAND_PARTITIONS = 8
"""Few, because a transaction syncs every partition that it touches twice. For more, create the topics
with more partitions before the first start; all services read the count from the log."""
DEFAULT_VERSION = "v1"
ANONYMOUS_OPS = frozenset({"account.create", "account.credentials"})
"""Queries that the gateway sends for a connection that has not authenticated; clients may not."""
SUBSCRIBE_OP = "room.subscribe"

GATEWAYS_NODE = "/gateways"
"""Parent of the live gateways' ephemeral znodes; their data is a `GatewayNode`."""
ROUTES_NODE = "/gateway/routes"


def command_topic(version: str = DEFAULT_VERSION) -> TopicSpec:
    """Clients' commands for the back ends of one application version."""
    return TopicSpec(
        name=f"gw.cmd.{version}",
        partitions=COMMAND_PARTITIONS,
        key="USER",
        doc=f"Commands and queries of clients of application version {version}, for its back ends.",
        configs={"retention.ms": str(7 * _DAY_MS)},
    )


COMMANDS = command_topic()
INBOX = TopicSpec(
    name="gw.inbox",
    partitions=8,
    key="USER",
    doc="Every durable event for a user. Its retention is how long a client may be away and still resume.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
ROOMS = TopicSpec(
    name="gw.rooms",
    partitions=8,
    key="ROOM",
    doc="Events of rooms: written once, fanned out by the gateways to subscribed connections.",
    configs={"retention.ms": str(7 * _DAY_MS)},
)
REPLIES = TopicSpec(
    name="gw.reply",
    partitions=64,
    key="GATEWAY",
    doc="Replies to queries, one partition for each gateway slot.",
    configs={"retention.ms": str(_HOUR_MS), "segment.ms": str(_HOUR_MS)},
)
PRESENCE = TopicSpec(
    name="gw.presence",
    partitions=8,
    key="USER",
    doc="Which gateway a user is connected to; a tombstone when the last connection closed. Valid only "
    "while the gateway's znode exists.",
    configs={"cleanup.policy": "compact", "segment.ms": str(_HOUR_MS)},
)
REVOKED = TopicSpec(
    name="gw.revoked",
    partitions=1,
    key="TOKEN ID",
    doc="Tokens that were revoked before they expired; all gateways refuse them.",
    configs={"cleanup.policy": "compact,delete", "retention.ms": str(31 * _DAY_MS)},
)

GATEWAY_TOPICS = (COMMANDS, INBOX, ROOMS, REPLIES, PRESENCE, REVOKED)


def partition_of(key: str | bytes, count: int) -> PartitionIndex:
    """The partition of a non-empty key by librdkafka's default partitioner (`consistent_random`)."""
    data = key.encode() if isinstance(key, str) else key
    return PartitionIndex(zlib.crc32(data) % count)


class Command(msgspec.Struct, frozen=True):
    """Value of a record of `gw.cmd.*`."""

    op: str
    body: msgspec.Raw = msgspec.Raw(b"{}")


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of a record of `gw.inbox` or `gw.rooms`. A result has its command's id in `re`."""

    type: str
    body: msgspec.Raw = msgspec.Raw(b"{}")
    re: str | None = None
    at_ms: int = 0


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """Value of a record of `gw.reply`."""

    ok: bool
    body: msgspec.Raw = msgspec.Raw(b"null")
    code: str | None = None
    message: str | None = None


class Presence(msgspec.Struct, frozen=True):
    """Value of a record of `gw.presence`."""

    gateway: str
    connections: int
    since_ms: int


class Revocation(msgspec.Struct, frozen=True):
    """Value of a record of `gw.revoked`."""

    user: str
    until_ms: int
    """When the token would have expired."""


class GatewayNode(msgspec.Struct, frozen=True):
    """Data of a gateway's ephemeral znode."""

    tcp: str
    """HOST:PORT for clients."""
    slot: int
    draining: bool = False


_encoder = msgspec.json.Encoder()


def encode_value(value: msgspec.Struct) -> bytes:
    """Raises MalformedEvent if it is too large for a default Kafka."""
    data = _encoder.encode(value)
    if len(data) > EVENT_SIZE_BYTES_MAX:
        raise MalformedEvent(
            f"a value takes {len(data)} bytes; at most {EVENT_SIZE_BYTES_MAX} are allowed"
        )
    return data


def raw(body: Any) -> msgspec.Raw:
    """Encodes any JSON-like value as a body of the structs above."""
    return msgspec.Raw(_encoder.encode(body))


_commands = msgspec.json.Decoder(Command)
_events = msgspec.json.Decoder(Event)
_replies = msgspec.json.Decoder(Reply)
_presences = msgspec.json.Decoder(Presence)
_revocations = msgspec.json.Decoder(Revocation)
_nodes = msgspec.json.Decoder(GatewayNode)


def _decode(decoder: Any, data: bytes) -> Any:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedEvent(str(error)) from None


def decode_command(data: bytes) -> Command:
    """Like the functions below, raises MalformedEvent, and nothing else, for invalid bytes."""
    command: Command = _decode(_commands, data)
    return command


def decode_event(data: bytes) -> Event:
    event: Event = _decode(_events, data)
    return event


def decode_reply(data: bytes) -> Reply:
    reply: Reply = _decode(_replies, data)
    return reply


def decode_presence(data: bytes) -> Presence:
    presence: Presence = _decode(_presences, data)
    return presence


def decode_revocation(data: bytes) -> Revocation:
    revocation: Revocation = _decode(_revocations, data)
    return revocation


def decode_node(data: bytes) -> GatewayNode:
    node: GatewayNode = _decode(_nodes, data)
    return node


Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class CommandHeaders:
    """The headers of a command. A command takes effect once per user and `id`."""

    id: str
    gateway: str
    app_version: str
    at_ms: TimestampMs
    reply: PartitionIndex | None = None
    """Partition of `gw.reply` for the reply; only queries have it, and a correlation id."""
    correlation: str | None = None
    anonymous: bool = False
    """The connection has not authenticated; the key is the name that it claims."""

    def to_headers(self) -> Headers:
        pairs: list[tuple[str, bytes | None]] = [
            ("id", self.id.encode()),
            ("gateway", self.gateway.encode()),
            ("app-version", self.app_version.encode()),
            ("at-ms", b"%d" % self.at_ms),
        ]
        if self.reply is not None and self.correlation is not None:
            pairs.append(("reply", b"%d" % self.reply))
            pairs.append(("correlation", self.correlation.encode()))
        if self.anonymous:
            pairs.append(("anonymous", b"1"))
        return tuple(pairs)

    @classmethod
    def of(cls, headers: Headers) -> CommandHeaders:
        """Raises MalformedEvent if a header is missing or invalid."""
        found = {name: value for name, value in headers if value is not None}
        try:
            return cls(
                id=found["id"].decode(),
                gateway=found["gateway"].decode(),
                app_version=found["app-version"].decode(),
                at_ms=TimestampMs(int(found["at-ms"])),
                reply=PartitionIndex(int(found["reply"])) if "reply" in found else None,
                correlation=found["correlation"].decode() if "correlation" in found else None,
                anonymous=found.get("anonymous") == b"1",
            )
        except (KeyError, ValueError) as error:
            raise MalformedEvent(f"headers of a command: {error!r}") from None


def reply_headers(correlation: str, gateway: str) -> Headers:
    """The headers of a reply, taken from the query's headers."""
    return (("correlation", correlation.encode()), ("gateway", gateway.encode()))
