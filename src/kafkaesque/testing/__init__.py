"""What this project gives to tests: ours, and above all those of its users (docs/TESTING.md).

    from kafkaesque.testing import Broker

    with Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

Names are loaded when they are first asked for: pytest imports this package in every run on a
machine that has it installed, and a run that needs no broker must not pay for one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafkaesque.testing.broker import Broker
    from kafkaesque.testing.clock import ManualClock
    from kafkaesque.testing.cluster import Cluster
    from kafkaesque.testing.cluster_processes import ClusterProcesses
    from kafkaesque.testing.namespace import Namespace
    from kafkaesque.testing.node_thread import BrokerFailed
    from kafkaesque.testing.records import Received, RecordSpec

__all__ = [
    "Broker",
    "BrokerFailed",
    "Cluster",
    "ClusterProcesses",
    "ManualClock",
    "Namespace",
    "Received",
    "RecordSpec",
]

_HOMES = {
    "Broker": "broker",
    "BrokerFailed": "node_thread",
    "Cluster": "cluster",
    "ClusterProcesses": "cluster_processes",
    "ManualClock": "clock",
    "Namespace": "namespace",
    "Received": "records",
    "RecordSpec": "records",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
