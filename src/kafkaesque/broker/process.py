"""One broker as a process: starts, reports its addresses, serves until a signal or a failure."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Callable, Mapping

from kafkaesque.broker.node import Node
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.service.process import stop_event

BrokerFacts = Mapping[str, str | int | None]
"""Addresses, id, pid and data directory of a running broker; None for a disabled listener."""


async def serve_broker(
    config: BrokerConfig, on_ready: Callable[[BrokerFacts], None], *, end_with_stdin: bool
) -> bool:
    """Serves until a signal. Returns False if the broker failed while it ran.

    Raises DataDirectoryInUse, DataDirectoryInvalid, InvalidConfig, KafkaError and OSError.
    """
    # If the supervisor is gone, the broker still syncs its logs, however long that takes.
    stopping = stop_event(end_with_stdin, orphan_seconds_max=None)
    node = Node(config)
    if not await _started(node, stopping):
        return True
    _tune_garbage_collector()
    on_ready(_facts(node))
    node.failed.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    await node.stop()
    return not node.failed.done()


async def _started(node: Node, stopping: asyncio.Event) -> bool:
    """False if it was stopped before: joining a cluster may have to wait for other brokers."""
    start = asyncio.ensure_future(node.start())
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        start.result()
        return True
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return False


def _tune_garbage_collector() -> None:
    """Exempts the objects created so far from garbage collection, and collects less often.

    Requests create no reference cycles, and clients notice the pause of a full collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)


def _facts(node: Node) -> BrokerFacts:
    return {
        "kafka": str(node.kafka_address),
        "http": str(node.http_address) if node.http_address else None,
        **node.services.addresses(),
        "node": node.config.node_id,
        "pid": os.getpid(),
        "data": node.config.log_dirs,
    }
