"""The commands in the controller's log, and their encoding.

MessagePack maps with a tag per command: an old log stays readable when a command gains a field with a
default. A field is never renamed or reused.
"""

from __future__ import annotations

from uuid import UUID

import msgspec


class RegisterBroker(msgspec.Struct, frozen=True, tag="register_broker"):
    """A broker joins the cluster, or comes back, perhaps at another address."""

    node_id: int
    directory_id: UUID
    """Identifies its disk. A new one means that the node has lost its Raft votes and log."""
    host: str
    port: int
    rack: str | None = None
    incarnation: int = 0
    """Differs at each start of its process."""


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
    """The target replicas of one partition; None cancels the reassignment in progress."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...] | None = None


class SetReassignments(msgspec.Struct, frozen=True, tag="set_reassignments"):
    changes: tuple[Reassignment, ...]


class CompleteReassignment(msgspec.Struct, frozen=True, tag="complete_reassignment"):
    """The group's members are now `replicas`, the last target that was set."""

    topic_id: UUID
    partition: int
    replicas: tuple[int, ...]


class SetTopicConfigs(msgspec.Struct, frozen=True, tag="set_topic_configs"):
    topic_id: UUID
    configs: dict[str, str]
    """All values that the topic sets itself; the others are at their defaults."""


class SetBrokerConfigs(msgspec.Struct, frozen=True, tag="set_broker_configs"):
    node_id: int | None
    """None: the default of all brokers."""
    configs: dict[str, str]


class ReserveProducerIds(msgspec.Struct, frozen=True, tag="reserve_producer_ids"):
    """Ids below `next_producer_id` are assigned or lost, never assigned twice."""

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
