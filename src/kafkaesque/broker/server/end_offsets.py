"""Where partitions end for consumers, by the word of those that lead them.

A follower learns of the high watermark late, and a broker without a replica not at all: what is told
of lag needs the leader's own figure. For descriptions and metrics, not for requests that are many.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.transaction_calls import REQUEST_KINDS
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.ids import NodeId, Offset, PartitionIndex, TopicPartition
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.frames import LENGTH_BYTES
from kafkaesque.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

CALL_SECONDS: Final = 2.0
_VERSION: Final = 9
_CONSUMER: Final = -1
_LATEST: Final = -1

EndOffsets = dict[TopicPartition, Offset]


async def find_end_offsets(context: Context, wanted: Iterable[TopicPartition]) -> EndOffsets:
    """High watermarks of those partitions whose leader is certain of it, here or elsewhere, and
    answers soon. The others are left out."""
    ends: EndOffsets = {}
    elsewhere: dict[NodeId, list[TopicPartition]] = defaultdict(list)
    for name in wanted:
        try:
            ends[name] = context.partitions.get(*name).high_watermark
        except KafkaError:
            leader = context.cluster.leader_of(*name)
            if leader is not None and leader.node_id != context.cluster.node_id:
                elsewhere[leader.node_id].append(name)
    asked = (_ask(context, node_id, names) for node_id, names in elsewhere.items())
    for told in await asyncio.gather(*asked):
        ends.update(told)
    return ends


async def _ask(context: Context, node_id: NodeId, names: list[TopicPartition]) -> EndOffsets:
    topics: dict[str, ListOffsetsTopic] = {}
    for topic, index in names:
        row = ListOffsetsPartition(partition_index=index, timestamp=_LATEST)
        topics.setdefault(topic, ListOffsetsTopic(name=topic, partitions=[])).partitions.append(row)
    request = ListOffsetsRequest(replica_id=_CONSUMER, topics=list(topics.values()))
    frame = b"".join(encode_request_frame(request, _VERSION, 0, None))[LENGTH_BYTES:]
    try:
        reply = await context.cluster.links.call(node_id, REQUEST_KINDS.start, frame, CALL_SECONDS)
    except PeerError:
        return {}
    answer = decode_response(ListOffsetsResponse, memoryview(reply)[LENGTH_BYTES:], _VERSION)
    return {
        TopicPartition(told.name, PartitionIndex(row.partition_index)): Offset(row.offset)
        for told in answer.topics
        for row in told.partitions
        if row.error_code == 0
    }
