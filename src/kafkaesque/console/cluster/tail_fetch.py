"""Looks at the end of a partition as a reader of committed records would: one small Fetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from kafkaesque.console.cluster.asking import answered
from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.rules.tails import Aborted, Tail, silent_until
from kafkaesque.console.rules.view import Place
from kafkaesque.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)

READ_COMMITTED: Final = 1
VERSION_MAX: Final = 12
"""The last that names topics; later ones want their ids."""
FETCH_BYTES_MAX: Final = 64 * 1024
"""Room for every marker of the longest tail that is looked at (78 bytes each)."""


async def look_at_tails(
    links: KafkaLinks, leaders: Mapping[Place, int], tails: Iterable[Tail]
) -> dict[Tail, int]:
    """For each tail whose leader answered: up to which offset there is nothing to read."""

    async def ask(tail: Tail) -> tuple[Tail, int]:
        topic, index = tail.place
        link = await links.node(leaders[tail.place])
        answer = await link.call(_request(topic, index, tail.committed), FetchResponse, VERSION_MAX)
        reached = tail.committed
        for part in (item for one in answer.responses for item in one.partitions):
            if not part.error_code and part.records is not None:
                aborted = [
                    Aborted(item.producer_id, item.first_offset)
                    for item in part.aborted_transactions or ()
                ]
                reached = silent_until(part.records, aborted, tail.committed)
        return tail, reached

    led = [tail for tail in tails if leaders.get(tail.place, -1) >= 0]
    return dict(await answered(map(ask, led)))


def _request(topic: str, index: int, offset: int) -> FetchRequest:
    partition = FetchPartition(
        partition=index, fetch_offset=offset, partition_max_bytes=FETCH_BYTES_MAX
    )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=FETCH_BYTES_MAX,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=[partition])],
    )
