"""Brokers that were there a moment ago: clients are told of them for a while longer.

Apache Kafka names a broker that died until its session has timed out. Clients rely on that:
librdkafka takes one that is missing for removed, and whoever waits in it for that broker (as
coordinator of a group, say) waits for ever (its issue 5511).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from kafkaesque.broker.replication.succession import CallLater
from kafkaesque.model.ids import NodeId

NAMED_SECONDS: Final = 30.0
"""Longer than a broker takes to start again, so that a restart removes nobody."""


class Departures:
    """Which brokers were lost within the last NAMED_SECONDS."""

    __slots__ = ("_call_later", "_recent")

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._recent: Counter[NodeId] = Counter()
        """How often each was lost of late: an older loss must not end a younger one's time."""

    def __contains__(self, node: NodeId) -> bool:
        return node in self._recent

    def lost(self, node: NodeId) -> None:
        self._recent[node] += 1
        self._call_later(NAMED_SECONDS, lambda: self._forget(node))

    def _forget(self, node: NodeId) -> None:
        self._recent[node] -= 1
        if not self._recent[node]:
            del self._recent[node]
