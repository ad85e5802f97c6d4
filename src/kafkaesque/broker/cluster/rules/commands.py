"""What may be written to the controller's log, and its bytes.

MessagePack maps with a tag per command: self-describing, so that an old log stays
readable when a command gains a field with a default. A field is never renamed or reused.
"""

from __future__ import annotations

from uuid import UUID

import msgspec


class RegisterBroker(msgspec.Struct, frozen=True, tag="register_broker"):
    """A broker is part of the cluster from now on, or came back, perhaps elsewhere."""

    node_id: int
    directory_id: UUID
    """Names its disk. Another one means that the node has forgotten all that it ever promised."""
    host: str
    port: int
    rack: str | None = None
    incarnation: int = 0
    """Of its process: new at each start."""


class UnregisterBroker(msgspec.Struct, frozen=True, tag="unregister_broker"):
    node_id: int


class CreateTopic(msgspec.Struct, frozen=True, tag="create_topic"):
    name: str
    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    """Node ids per partition, the preferred leader first."""
    configs: dict[str, str] = {}


class DeleteTopic(msgspec.Struct, frozen=True, tag="delete_topic"):
    topic_id: UUID


class AddPartitions(msgspec.Struct, frozen=True, tag="add_partitions"):
    topic_id: UUID
    replicas: tuple[tuple[int, ...], ...]
    """Node ids of the new partitions only."""


class Reassignment(msgspec.Struct, frozen=True):
    """Where one partition shall live; None: where it lived before the change under way."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...] | None = None


class SetReassignments(msgspec.Struct, frozen=True, tag="set_reassignments"):
    changes: tuple[Reassignment, ...]


class CompleteReassignment(msgspec.Struct, frozen=True, tag="complete_reassignment"):
    """The group's members are those of `replicas`, the target that was set last."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]


class SetTopicConfigs(msgspec.Struct, frozen=True, tag="set_topic_configs"):
    topic_id: UUID
    configs: dict[str, str]
    """All values the topic sets itself from now on; the others return to their defaults."""


class SetBrokerConfigs(msgspec.Struct, frozen=True, tag="set_broker_configs"):
    node_id: int | None
    """None for the default of all brokers."""
    configs: dict[str, str]


class ReserveProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """Ids below `next_producer_id` are handed out or lost, never handed out twice."""

    next_producer_id: int


Command = (
    CreateTopic
    | DeleteTopic
    | AddPartitions
    | SetTopicConfigs
    | SetBrokerConfigs
    | ReserveProducerIds
    | RegisterBroker
    | UnregisterBroker
    | SetReassignments
    | CompleteReassignment
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Command)


def encode_command(command: Command) -> bytes:
    return _encoder.encode(command)


def decode_command(data: bytes) -> Command:
    command: Command = _decoder.decode(data)
    return command
