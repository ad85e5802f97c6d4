"""Registers a broker with a new data directory, through any broker whose address is configured."""

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
from kafkaesque.broker.replication.rules.peer_hello import PeerIdentity
from kafkaesque.broker.server.addresses import parse_listener
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import NotController
from kafkaesque.model.ids import GroupId, NodeId

logger = logging.getLogger(__name__)

RETRY_SECONDS = 0.2
LOG_EVERY_TRIES = 25


class Seeds:
    """Addresses of brokers that may belong to the cluster."""

    __slots__ = ("addresses",)

    def __init__(self, texts: Sequence[str]) -> None:
        self.addresses = tuple(PeerAddress(*parse_listener(text, "join")) for text in texts)

    def __bool__(self) -> bool:
        return bool(self.addresses)


class _NoInbox:
    """The inbox of a broker that has no cluster yet."""

    def raft_message(self, group: GroupId, message: Message) -> None: ...

    def reachable(self, node: NodeId) -> None: ...

    def unreachable(self, node: NodeId) -> None: ...

    def dropped(self, node: NodeId) -> None: ...

    def heartbeats_since(self) -> float:
        return inf

    def post(self, node: NodeId, kind: int, body: bytes) -> None: ...

    def call(self, node: NodeId, kind: int, body: bytes) -> bytes:
        raise NotController("this broker belongs to no cluster yet")


async def introduce_broker(
    seeds: Seeds,
    me: PeerIdentity,
    request: BrokerRegistration,
    loop: asyncio.AbstractEventLoop,
    clock: Clock,
) -> tuple[str, int]:
    """Registers with the cluster of the first seed that answers. Returns the cluster id and our
    generation.

    Retries until it succeeds or is refused, so that brokers can be started together.
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
                    if tries % LOG_EVERY_TRIES == 0:
                        logger.info("cannot join through %s:%d yet: %s", *address, error)
            tries += 1
            await asyncio.sleep(RETRY_SECONDS)
    finally:
        await links.close(0)
