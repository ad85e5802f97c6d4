"""The end offsets of partitions for consumers, as reported by their leaders.

A follower gets the high watermark late, and a broker without a replica never does, so consumer
lag needs the leader's value. For descriptions and metrics, not for frequent requests.
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
    """Returns the high watermarks of the partitions whose leader, here or elsewhere, is certain of
    it and answers soon. The others are left out."""
    ends: EndOffsets = {}
    elsewhere: dict[NodeId, list[TopicPartition]] = defaultdict(list)
    for name in wanted:
        try:
            ends[name] = context.partitions.get(*name).high_watermark
        except KafkaError:
            leader = context.cluster.leader_of(*name)
            if leader is not None and leader.node_id != context.cluster.node_id:
                elsewhere[leader.node_id].append(name)
    calls = (_ask(context, node_id, names) for node_id, names in elsewhere.items())
    for found in await asyncio.gather(*calls):
        ends.update(found)
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
        TopicPartition(topic.name, PartitionIndex(row.partition_index)): Offset(row.offset)
        for topic in answer.topics
        for row in topic.partitions
        if row.error_code == 0
    }
