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
    node = await _start(config, stopping)
    if node is None:
        return True
    _tune_garbage_collector()
    on_ready(_facts(node))
    node.failed.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    await node.stop()
    return not node.failed.done()


async def _start(config: BrokerConfig, stopping: asyncio.Event) -> Node | None:
    """Returns None if it is stopped before it serves: joining a cluster may have to wait for other
    brokers."""
    start = asyncio.ensure_future(Node.start(config))
    stop = asyncio.ensure_future(stopping.wait())
    await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    if start.done():
        return start.result()
    start.cancel()
    await asyncio.gather(start, return_exceptions=True)
    return None


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
