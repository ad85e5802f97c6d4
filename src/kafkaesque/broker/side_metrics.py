"""Prometheus metrics of coordination and the text protocol, computed on each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from kafkaesque.broker.side_services import SideServices


class SideCollector(Collector):
    """The metrics of one node."""

    def __init__(self, services: SideServices) -> None:
        self._services = services

    def collect(self) -> Iterator[Metric]:
        coordination = self._services.coordination
        server, machine = coordination.server, coordination.coordinator.machine
        gauges = {
            "sessions": ("Sessions of the whole cluster.", len(machine.sessions)),
            "nodes": ("Nodes of the tree.", len(machine.tree.nodes)),
            "ephemeral_nodes": ("Nodes that end with a session.", machine.tree.ephemeral_count),
            "size_bytes": ("Paths and data of the tree.", machine.tree.size_bytes),
            "watches": (
                "Watches of this broker's clients.",
                coordination.coordinator.watches.counts().watches,
            ),
            "connections": (
                "Clients connected to this broker.",
                0 if server is None else server.connection_count,
            ),
            "zxid": ("Index of the last command applied here.", machine.zxid),
            "is_leader": ("1 on the broker that ends sessions.", int(coordination.group.is_leader)),
        }
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(f"kafkaesque_coordination_{name}", text, value=value)
        received, sent = (0, 0) if server is None else (server.counts.received, server.counts.sent)
        for name, number in (("received", received), ("sent", sent)):
            yield CounterMetricFamily(
                f"kafkaesque_coordination_packets_{name}", f"Packets {name}.", value=number
            )
        yield GaugeMetricFamily(
            "kafkaesque_text_connections",
            "Clients of the text protocol.",
            value=self._services.text.connection_count,
        )
