"""The answer of /readyz: whether a running broker can serve its clients."""

from __future__ import annotations

from typing import Final

from kafkaesque.broker.server.context import Context
from kafkaesque.service.status_page import Page, text_page

REFUSAL_SECONDS: Final = 10.0
"""How long a broker is not ready after its disk refused a batch. Producers retry more often, so the
broker stays unready as long as any producer fails to write."""


def readiness(context: Context) -> Page:
    loading = sum(host.registry is None for host in context.groups)
    if loading:
        return text_page(503, f"loading the groups of {loading} coordinator partition(s)")
    ago = context.clock.monotonic() - context.stats.disk_refused_at
    if ago < REFUSAL_SECONDS:
        return text_page(
            503,
            f"the disk refuses writes, the last one {ago:.0f} s ago: see the log for the reason",
        )
    if context.cluster.controller_log.replica.is_without_room:
        return text_page(
            503, "the disk has no room for the controller's log: topics and brokers are out of date"
        )
    return text_page(200, "ready")
