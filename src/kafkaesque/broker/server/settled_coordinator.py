"""A request to a coordinator waits out a change of coordinators, as long as an election takes.

librdkafka looks once for another coordinator, asks a loading one three times within a moment, and then
tells the application that its commit has failed (found by `fault run rolling-restart`). So who is
handing over, or loading, does not say so at once; and who has handed over says it when it knows to whom,
because the client will ask around where to go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kafkaesque.broker.partitions.group_coordinator import GROUP_TOPIC, GroupShard
from kafkaesque.broker.server.context import Context
from kafkaesque.model.errors import CoordinatorLoading, NotCoordinator

T = TypeVar("T")

ELECTION_SECONDS: Final = 2.0
"""Longer than one takes, and shorter than clients wait."""
_LOOK_SECONDS: Final = 0.02


async def ask_settled(
    context: Context, group_id: str, ask: Callable[[GroupShard], Awaitable[T]]
) -> T:
    """What `ask` gets of the group's coordinator; its own error when the time is over."""
    deadline = context.loop.time() + ELECTION_SECONDS
    while True:
        try:
            return await ask(context.groups.of_group(group_id))
        except CoordinatorLoading:
            if context.loop.time() > deadline:
                raise
        except NotCoordinator:
            if context.loop.time() > deadline or _is_elsewhere(context, group_id):
                raise
        await asyncio.sleep(_LOOK_SECONDS)


def _is_elsewhere(context: Context, group_id: str) -> bool:
    leader = context.cluster.leader_of(GROUP_TOPIC, context.groups.partition_of(group_id))
    return leader is not None and leader.node_id != context.cluster.node_id
