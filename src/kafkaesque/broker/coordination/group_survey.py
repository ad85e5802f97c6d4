"""Asks all brokers for the consumer groups that each coordinates, and answers when they ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from kafkaesque.broker.coordination.rules.consumers import GroupRow, LastAnswers
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.model.ids import NodeId

logger = logging.getLogger("kafkaesque.broker.coordination.rules")

GROUPS: Final = 18
"""Kind of call between brokers: the consumer groups that you coordinate."""
CALL_SECONDS: Final = 2.0

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[GroupRow])


class GroupSurvey:
    """One broker's view of the groups of all."""

    __slots__ = ("_answers", "_call", "_live_nodes", "_node_id", "_own_groups")

    def __init__(
        self,
        node_id: NodeId,
        live_nodes: Callable[[], list[NodeId]],
        call: Callable[[NodeId, int, bytes, float], Awaitable[bytes]],
        own_groups: Callable[[], Iterable[GroupRow]],
    ) -> None:
        self._node_id = node_id
        self._live_nodes = live_nodes
        self._call = call
        self._own_groups = own_groups
        self._answers = LastAnswers()

    async def ask(self) -> None:
        """All others. Of who is up and does not answer the last answer holds until it does."""
        await asyncio.gather(*(self._ask(n) for n in self._live_nodes() if n != self._node_id))

    def groups(self) -> Iterable[GroupRow]:
        """Those of this broker as they are now, those of the others as they told them."""
        self._answers.told(self._node_id, list(self._own_groups()))
        return self._answers.groups(self._live_nodes()).values()

    async def _ask(self, node: NodeId) -> None:
        try:
            answer = await self._call(node, GROUPS, b"", CALL_SECONDS)
            self._answers.told(node, _decoder.decode(answer))
        except (PeerError, msgspec.MsgspecError) as error:
            logger.info("broker %d does not tell its consumer groups: %s", node, error)

    def answer(self) -> bytes:
        """To another broker's survey."""
        return _encoder.encode(list(self._own_groups()))
