"""The pytest plugin: a broker per test process, a namespace of topics per test, and a cluster.

Registered as the entry point `kafkaesque`, so pytest loads it in every run of an environment that
has the package. Therefore broker and client are imported only when a fixture needs them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafkaesque.model.clock import Clock
    from kafkaesque.testing.broker import Broker, PlainValue
    from kafkaesque.testing.client import SharedClient
    from kafkaesque.testing.cluster import Cluster
    from kafkaesque.testing.namespace import Namespace

_MARKER = (
    "kafkaesque(partitions=None, settings=None, clock=None): run the test on its own broker, "
    "with this many partitions per topic, these broker settings, this clock"
)
_SETTINGS_OPTION = "kafkaesque_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        _SETTINGS_OPTION,
        "Settings of the shared broker, one per line: num.partitions=4",
        type="linelist",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _MARKER)


@pytest.fixture(scope="session")
def kafkaesque_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """The broker shared by all tests of this process; under pytest-xdist each worker has its own."""
    from kafkaesque.testing.broker import Broker

    with Broker(settings=_shared_settings(pytestconfig)) as broker:
        yield broker


@pytest.fixture(scope="session")
def _kafkaesque_client(kafkaesque_broker: Broker) -> Iterator[SharedClient]:
    from kafkaesque.testing.client import SharedClient

    with SharedClient(kafkaesque_broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def kafkaesque(request: pytest.FixtureRequest) -> Iterator[Namespace]:
    """Topics, groups and records of this test, on the shared broker or, if the test is marked with
    `@pytest.mark.kafkaesque(...)`, on its own broker."""
    from kafkaesque.testing.broker import Broker
    from kafkaesque.testing.client import SharedClient
    from kafkaesque.testing.namespace import Namespace

    marker = request.node.get_closest_marker("kafkaesque")
    if marker is None:
        broker = request.getfixturevalue("kafkaesque_broker")
        client = request.getfixturevalue("_kafkaesque_client")
        namespace = Namespace(broker, client, request.node.name)
        yield namespace
        namespace.close()
        return
    settings, clock = _marked(marker, _shared_settings(request.config))
    with (
        Broker(settings=settings, clock=clock) as broker,
        SharedClient(broker.bootstrap_servers) as client,
    ):
        yield Namespace(broker, client, request.node.name)


@pytest.fixture(scope="session")
def _kafkaesque_cluster(pytestconfig: pytest.Config) -> Iterator[Cluster]:
    from kafkaesque.testing.cluster import Cluster

    with Cluster(3, settings=_shared_settings(pytestconfig)) as cluster:
        yield cluster


@pytest.fixture
def kafkaesque_cluster(_kafkaesque_cluster: Cluster) -> Iterator[Cluster]:
    """A cluster of three brokers shared by the tests of this process, repaired after each test."""
    yield _kafkaesque_cluster
    _kafkaesque_cluster.mend()
    _kafkaesque_cluster.check()


def _shared_settings(config: pytest.Config) -> dict[str, PlainValue]:
    settings: dict[str, PlainValue] = {}
    for line in config.getini(_SETTINGS_OPTION):
        name, separator, text = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"{_SETTINGS_OPTION}: expected name=value, not {line!r}")
        settings[name.strip()] = text.strip()
    return settings


def _marked(
    marker: pytest.Mark, settings: dict[str, PlainValue]
) -> tuple[dict[str, PlainValue], Clock | None]:
    given = dict(marker.kwargs)
    partitions, own, clock = (given.pop(name, None) for name in ("partitions", "settings", "clock"))
    if given or marker.args:
        raise pytest.UsageError(
            f"@pytest.mark.kafkaesque takes partitions=, settings= and clock=, not "
            f"{[*marker.args, *given]}"
        )
    if partitions is not None:
        settings["num.partitions"] = partitions
    return settings | (own or {}), clock
