"""What /readyz says of a broker that runs: whether it serves its clients."""

from __future__ import annotations

from typing import Final

from kafkaesque.broker.server.context import Context
from kafkaesque.service.status_page import Page, text_page

REFUSAL_SECONDS: Final = 10.0
"""How long a broker is not ready after its disk refused a batch. Producers try again more often than
that: it lasts as long as somebody wants to write and cannot."""


def readiness(context: Context) -> Page:
    loading = sum(host.registry is None for host in context.groups)
    if loading:
        return text_page(503, f"loading the groups of {loading} coordinator partition(s)")
    ago = context.clock.monotonic() - context.stats.disk_refused_at
    if ago < REFUSAL_SECONDS:
        return text_page(
            503, f"the disk refuses writes, the last one {ago:.0f} s ago: the log says why"
        )
    if context.cluster.journal.replica.is_without_room:
        return text_page(
            503, "the disk has no room for the controller's log: topics and brokers are of old"
        )
    return text_page(200, "ready")
