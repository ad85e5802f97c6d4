"""The bytes of a snapshot of the tables.

A MessagePack map, so that an old snapshot stays readable when a table is added with a default.
Only what cannot be computed from the rest is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from kafkaesque.broker.cluster.rules.topology import Broker, Disk, Topic
from kafkaesque.model.errors import CorruptMessage
from kafkaesque.model.ids import GroupId, NodeId, ProducerId, TopicId

SNAPSHOT_VERSION: Final = 1
"""Grows when an older node would misread what is written; it then refuses."""


class TablesSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    version: int = SNAPSHOT_VERSION
    topics: list[Topic]
    """In the order in which they were made, which is the order in which clients see them."""
    deleted_ids: list[TopicId]
    broker_configs: list[tuple[NodeId | None, Mapping[str, str]]]
    next_producer_id: ProducerId
    next_group_id: GroupId
    brokers: list[Broker]
    disks: list[tuple[NodeId, Disk]]
    registration_count: int


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(TablesSnapshot)


def encode_snapshot(snapshot: TablesSnapshot) -> bytes:
    return _encoder.encode(snapshot)


def decode_snapshot(data: bytes) -> TablesSnapshot:
    try:
        snapshot: TablesSnapshot = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise CorruptMessage(f"snapshot of the cluster's tables: {error}") from None
    if snapshot.version > SNAPSHOT_VERSION:
        raise CorruptMessage(
            f"snapshot of the cluster's tables has version {snapshot.version}; this broker "
            f"understands {SNAPSHOT_VERSION}: upgrade it"
        )
    return snapshot
