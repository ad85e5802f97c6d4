"""The test kit: brokers and clusters for the tests of users, and for ours (docs/TESTING.md).

    from kafkaesque.testing import Broker

    with Broker() as broker:
        Producer({"bootstrap.servers": broker.bootstrap_servers})

Names are imported on first use: pytest imports this package in every run of an environment that has
it installed, and a run without a broker must not pay for one.
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

_MODULES = {
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
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
