"""What a broker that comes back first asks those whose cluster it is told to be in."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from kafkaesque.broker.cluster.rules.refusals import InconsistentClusterId
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.links import IntroductionRefused, Links
from kafkaesque.broker.replication.rules.peer_hello import Refusal

PATIENCE_SECONDS = 0.5
"""One that does not answer by then is asked later, or is down."""


async def refuse_other_cluster(links: Links, seeds: Sequence[PeerAddress]) -> None:
    """Raise if a seed belongs to another cluster than our data: with the wrong directory, or the
    wrong address, this broker would quietly be a cluster of its own."""
    await asyncio.gather(*(_check(links, seed) for seed in seeds))


async def _check(links: Links, seed: PeerAddress) -> None:
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                await links.introduce(seed)
    except IntroductionRefused as refused:
        if refused.answer.refusal is Refusal.WRONG_CLUSTER:
            raise InconsistentClusterId(
                f"the data directory belongs to cluster {links.me.cluster_id}, but {seed.host}:"
                f"{seed.port} to cluster {refused.answer.answerer.cluster_id}. Use the directory "
                "of that cluster, an empty one to join it anew, or another address."
            ) from None
    except OSError:
        return
