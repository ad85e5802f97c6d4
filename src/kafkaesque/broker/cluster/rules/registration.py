"""Rules for registering and unregistering brokers."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from kafkaesque.broker.cluster.rules import commands
from kafkaesque.broker.cluster.rules.errors import (
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InvalidRegistration,
)
from kafkaesque.broker.cluster.rules.tables import Tables
from kafkaesque.model.ids import NODE_ID_MAX, NodeId


@dataclass(frozen=True, slots=True)
class NewBroker:
    """A broker's description of itself when it joins or comes back."""

    node_id: NodeId
    directory_id: UUID
    host: str
    port: int
    rack: str | None = None
    incarnation: int = 0


def registration(
    tables: Tables, wanted: NewBroker, live: Collection[NodeId], *, is_old_gone: bool
) -> commands.RegisterBroker | None:
    """Returns the command that registers `wanted`; None if the tables contain exactly that already.

    A known node id with a new disk replaces the registered broker, whose replicas are then lost to
    the cluster. It is rejected while that broker is `live`, unless the caller is sure that it is gone
    (`is_old_gone`): two processes with one node id would replace each other for ever.
    """
    if not 0 <= wanted.node_id <= NODE_ID_MAX:
        raise InvalidRegistration(f"Broker id {wanted.node_id} is not in 0..{NODE_ID_MAX}")
    for other in tables.brokers.values():
        if other.directory_id == wanted.directory_id and other.node_id != wanted.node_id:
            # A copied data directory: both brokers would vote as one member.
            raise InvalidRegistration(
                f"Broker {other.node_id} is already registered with directory {wanted.directory_id}"
            )
    current = tables.brokers.get(wanted.node_id)
    if current is not None:
        is_same_disk = current.directory_id == wanted.directory_id
        if not is_same_disk and wanted.node_id in live and not is_old_gone:
            raise DuplicateBrokerRegistration(
                f"Another broker is registered with that broker id: {current.node_id} at "
                f"{current.host}:{current.port}, which is up, with directory "
                f"{current.directory_id}. Give this broker a node.id of its own; or, if it replaces "
                "the other, stop that one first."
            )
    command = commands.RegisterBroker(
        node_id=wanted.node_id,
        directory_id=wanted.directory_id,
        host=wanted.host,
        port=wanted.port,
        rack=wanted.rack,
        incarnation=wanted.incarnation,
    )
    return None if _is_registered(tables, command) else command


def unregistration(tables: Tables, node_id: int) -> commands.UnregisterBroker:
    """Accepts, as Kafka does, a broker that is up and one that still has replicas: a broker that
    leaves sends this itself, and one that is lost for good cannot be drained."""
    if node_id not in tables.brokers:
        raise BrokerIdNotRegistered(f"Broker ID {node_id} is not currently registered")
    return commands.UnregisterBroker(node_id)


def _is_registered(tables: Tables, command: commands.RegisterBroker) -> bool:
    current = tables.brokers.get(NodeId(command.node_id))
    return current is not None and command == commands.RegisterBroker(
        node_id=current.node_id,
        directory_id=current.directory_id,
        host=current.host,
        port=current.port,
        rack=current.rack,
        incarnation=current.incarnation,
    )
