"""Retries a request to a group coordinator during a change of coordinators, for as long as an
election takes.

librdkafka looks only once for another coordinator and retries a loading one three times in quick
succession; then it reports a failed commit to the application (found by `fault run rolling-restart`).
So a broker that is handing over or loading does not answer at once. A broker that has handed over
answers once the new coordinator is announced, because the client will then look it up at any broker.
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
"""Longer than an election takes, and shorter than clients wait."""
_RETRY_SECONDS: Final = 0.02


async def call_with_retries(
    context: Context, group_id: str, call: Callable[[GroupShard], Awaitable[T]]
) -> T:
    """Calls `call` with the shard of the group's coordinator. Raises its error after
    ELECTION_SECONDS."""
    deadline = context.loop.time() + ELECTION_SECONDS
    while True:
        try:
            return await call(context.groups.of_group(group_id))
        except CoordinatorLoading:
            if context.loop.time() > deadline:
                raise
        except NotCoordinator:
            if context.loop.time() > deadline or _is_elsewhere(context, group_id):
                raise
        await asyncio.sleep(_RETRY_SECONDS)


def _is_elsewhere(context: Context, group_id: str) -> bool:
    leader = context.cluster.leader_of(GROUP_TOPIC, context.groups.partition_of(group_id))
    return leader is not None and leader.node_id != context.cluster.node_id
