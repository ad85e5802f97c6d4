"""kazoo's own test suite against our server, as a pytest plugin that replaces its cluster.

    python -m pytest -p tests.conformance_zookeeper.kazoo_suite -c /dev/null --pyargs kazoo.tests

`ZOOKEEPER=host:port` runs it against that server instead. Not included are the tests that need an
ensemble (read-only mode, reconfiguration, a changed list of hosts), SASL or TLS, or packages that
are not installed (gevent, eventlet).
"""

from __future__ import annotations

import gc
import os
import sys
import types
from collections.abc import Iterator

import pytest

# Read by kazoo's tests when they decide what to skip.
os.environ.setdefault("ZOOKEEPER_VERSION", "3.9.3")

# Its harness creates TLS keys with the first two; no test that runs here needs them.
for _absent in ("OpenSSL", "jks", "objgraph"):
    sys.modules.setdefault(_absent, types.ModuleType(_absent))
sys.modules["objgraph"].count = lambda name: sum(  # type: ignore[attr-defined]
    type(thing).__name__ == name for thing in gc.get_objects()
)

from kazoo.testing import harness  # noqa: E402
from tests.conformance_zookeeper.serving import ServerThread  # noqa: E402

from kafkaesque.broker.coordination.config import CoordinationConfig  # noqa: E402

GIVEN = os.environ.get("ZOOKEEPER", "")

LEFT_OUT = (
    "test_sasl",
    "test_connection.py::TestReadOnlyMode",
    "test_client.py::TestReconfig",
    "test_client.py::TestSSLClient",
    "test_gevent",
    "test_eventlet",
    "test_build",
    "test_client.py::TestClient::test_update_host_list",
)


class Server:
    """The interface of one ZooKeeper that kazoo's harness expects."""

    def __init__(self) -> None:
        self._thread: ServerThread | None = None
        self.running = False
        if not GIVEN:
            config = CoordinationConfig(max_connections_per_host=0)
            self._thread = ServerThread(config)

    @property
    def address(self) -> str:
        return GIVEN if self._thread is None else self._thread.address

    def run(self) -> None:
        if not self.running and self._thread is not None:
            self._thread.start()
        self.running = True

    def stop(self) -> None:
        if self.running and self._thread is not None:
            self._thread.stop()
        self.running = False


class Cluster:
    def __init__(self) -> None:
        self._servers = [Server()]

    def __iter__(self) -> Iterator[Server]:
        return iter(self._servers)

    def __getitem__(self, number: int) -> Server:
        return self._servers[number]

    def start(self) -> None:
        for server in self._servers:
            server.run()

    def terminate(self) -> None:
        """Does nothing: the server is shared by all test classes and ends with the process."""

    def get_logs(self) -> list[str]:
        return []


_cluster = Cluster()
harness.get_global_cluster = lambda: _cluster


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = [item for item in items if any(name in item.nodeid for name in LEFT_OUT)]
    config.hook.pytest_deselected(items=out)
    items[:] = [item for item in items if item not in out]
