"""How a broker with a new data directory becomes a member: it asks any broker that it was told of."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import inf

from kafkaesque.broker.cluster.cluster import BROKER_REQUEST, CALL_SECONDS
from kafkaesque.broker.cluster.rules.broker_requests import (
    BrokerRegistration,
    Registered,
    decode_reply,
    encode_request,
)
from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.broker.replication.rules.peer_hello import Identity
from kafkaesque.broker.server.addresses import parse_address
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import NotController
from kafkaesque.model.ids import GroupId, NodeId

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
COMPLAIN_EVERY_TRIES = 25


class Seeds:
    """Addresses of brokers that may know the cluster."""

    __slots__ = ("addresses",)

    def __init__(self, texts: Sequence[str]) -> None:
        self.addresses = tuple(PeerAddress(*parse_address(text, "join")) for text in texts)

    def __bool__(self) -> bool:
        return bool(self.addresses)


class _NoInbox:
    """Of a broker that takes part in nothing yet."""

    def raft_message(self, group: GroupId, message: Message) -> None: ...

    def reachable(self, node: NodeId) -> None: ...

    def unreachable(self, node: NodeId) -> None: ...

    def dropped(self, node: NodeId) -> None: ...

    def spoke_at(self) -> float:
        return inf

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes:
        raise NotController("this broker belongs to no cluster yet")


async def introduce_broker(
    seeds: Seeds,
    me: Identity,
    request: BrokerRegistration,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
) -> tuple[str, int]:
    """Register with the cluster of the first seed that answers: its cluster id, our generation.

    Tried until it works or is refused: brokers that are started together find each other.
    """
    failures: list[BaseException] = []
    links = Links(me, loop, _NoInbox(), clock, fail=failures.append)
    tries = 0
    try:
        while True:
            for address in seeds.addresses:
                try:
                    seed = await links.introduce(address)
                    if seed.cluster_id:
                        body = encode_request(request)
                        reply = await links.call(seed.node_id, BROKER_REQUEST, body, CALL_SECONDS)
                        return seed.cluster_id, decode_reply(reply, Registered)[0].generation
                except (OSError, PeerError) as error:
                    if tries % COMPLAIN_EVERY_TRIES == 0:
                        logger.info("%s:%d does not let us join yet: %s", *address, error)
            tries += 1
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        await links.close(0)
