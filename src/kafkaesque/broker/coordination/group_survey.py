"""Collects the consumer groups of all brokers, and answers the other brokers' surveys.

`ThrottledRefresh` bounds the cost of many surveys.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import msgspec

from kafkaesque.broker.coordination.rules.consumers import GroupRow, LastAnswers
from kafkaesque.broker.replication.peer_calls import PeerError
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import NodeId

logger = logging.getLogger("kafkaesque.coordination")

GROUPS: Final = 18
"""Kind of call between brokers: requests the consumer groups that the broker coordinates."""
CALL_SECONDS: Final = 2.0

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[GroupRow])


class GroupSurvey:
    """One broker's view of the groups of all brokers."""

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

    async def survey(self) -> None:
        """Surveys all other brokers. The last answer of a live broker stays valid until its next."""
        await asyncio.gather(*(self._ask(n) for n in self._live_nodes() if n != self._node_id))

    def groups(self) -> Iterable[GroupRow]:
        """This broker's groups as of now, the others' as of their last answers."""
        self._answers.update(self._node_id, list(self._own_groups()))
        return self._answers.groups(self._live_nodes()).values()

    async def _ask(self, node: NodeId) -> None:
        try:
            answer = await self._call(node, GROUPS, b"", CALL_SECONDS)
            self._answers.update(node, _decoder.decode(answer))
        except (PeerError, msgspec.MsgspecError) as error:
            logger.info("broker %d did not return its consumer groups: %s", node, error)

    def answer(self) -> bytes:
        """The answer to another broker's survey."""
        return _encoder.encode(list(self._own_groups()))


COSTLY_SECONDS: Final = 0.05
"""About the cost of hundreds of consumer groups."""
REUSE: Final = 10
"""An expensive result stays valid for this many times its cost."""


class ThrottledRefresh:
    """Runs `refresh`, one at a time. `refresh` returns how long it occupied the event loop.

    A result that cost COSTLY_SECONDS or more is reused for REUSE times as long, so refreshes take at
    most a tenth of the loop, however many there are. A cheap result is never reused.
    """

    __slots__ = ("_clock", "_fresh_until_s", "_refresh", "_turn")

    def __init__(self, refresh: Callable[[], Awaitable[float]], clock: Clock) -> None:
        self._refresh = refresh
        self._clock = clock
        self._fresh_until_s = clock.monotonic()
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        async with self._turn:
            if self._clock.monotonic() < self._fresh_until_s:
                return
            cost_s = await self._refresh()
            if cost_s >= COSTLY_SECONDS:
                self._fresh_until_s = self._clock.monotonic() + REUSE * cost_s
