"""One broker for the whole session, and topics and groups with names of their own.

`KAFKA=host:port` names a running broker; `KAFKA=apache` starts an Apache Kafka from Maven
artefacts; `KAFKA=cluster` three brokers of ours; otherwise our own broker is started as a process. No
test may expect to be alone on it.
"""

from __future__ import annotations

import gc
import os
import tempfile
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.clients import CLIENTS, Client, Unavailable, open_client
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.apache_kafka import ApacheKafka
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.cluster_processes import ClusterProcesses

NOT_LEADER = 6
SETTINGS = {
    "auto.create.topics.enable": "true",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            # Warnings of the client libraries are not ours to fix.
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session", autouse=True)
def _quiet_end() -> Iterator[None]:
    """Sockets that client libraries leave to the garbage collector must not fail our tests."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def bootstrap() -> Iterator[str]:
    """The address under test."""
    given = os.environ.get("KAFKA", "")
    if given == "apache":
        with ApacheKafka(settings=SETTINGS) as kafka:
            yield kafka.bootstrap_servers
    elif given == "cluster":
        with (
            tempfile.TemporaryDirectory(prefix="kafkaesque-conformance-") as directory,
            ClusterProcesses(3, Path(directory), settings=SETTINGS) as cluster,
        ):
            yield cluster.bootstrap_servers
    elif given:
        yield given
    else:
        with (
            tempfile.TemporaryDirectory(prefix="kafkaesque-conformance-") as directory,
            BrokerProcess(Path(directory), SETTINGS) as broker,
        ):
            yield broker.bootstrap_servers


@pytest.fixture
def admin(bootstrap: str) -> Iterator[RawClient]:
    """A connection for preparations; tests of the wire protocol open their own."""
    with RawClient(bootstrap, client_id="conformance-admin") as client:
        yield client


class Topics:
    """Creates topics with unique names."""

    def __init__(self, admin: RawClient) -> None:
        self._admin = admin

    @staticmethod
    def name(prefix: str = "t") -> str:
        return f"{prefix}-{uuid.uuid4().hex}"

    def create(self, partitions: int = 1, **configs: str) -> str:
        """A topic that is ready for use; `retention_ms="1"` sets `retention.ms`."""
        name = self.name()
        row = {"name": name, "num_partitions": partitions, "replication_factor": -1}
        row["configs"] = [
            {"name": key.replace("_", "."), "value": value} for key, value in configs.items()
        ]
        (answer,) = self._admin.call("create_topics", 7, timeout=10_000, topics=[row])["topics"]
        assert answer["error_code"] == ErrorCode.NONE, answer
        self.wait_for(name, partitions)
        return name

    def wait_for(self, name: str, partitions: int = 1) -> dict[str, Any]:
        """Wait until the topic can be used: Apache Kafka answers CreateTopics earlier than that."""

        def ready() -> dict[str, Any]:
            metadata = self._admin.call("metadata", 12, topics=[{"name": name, "topic_id": None}])
            (row,) = metadata["topics"]
            assert row["error_code"] == ErrorCode.NONE
            assert len(row["partitions"]) == partitions
            offsets = self._admin.call(
                "list_offsets",
                7,
                replica_id=-1,
                topics=[
                    {
                        "name": name,
                        "partitions": [
                            {"partition_index": index, "timestamp": -1}
                            for index in range(partitions)
                        ],
                    }
                ],
            )["topics"][0]["partitions"]
            # With several brokers, only partitions led by this one can be checked here.
            fine = {0} if len(metadata["brokers"]) == 1 else {0, NOT_LEADER}
            assert {row["error_code"] for row in offsets} <= fine
            found: dict[str, Any] = row
            return found

        return eventually_passes(ready)

    def id_of(self, name: str) -> uuid.UUID:
        (row,) = self._admin.call("metadata", 12, topics=[{"name": name, "topic_id": None}])[
            "topics"
        ]
        topic_id = row["topic_id"]
        assert isinstance(topic_id, uuid.UUID)
        return topic_id


@pytest.fixture
def topics(admin: RawClient) -> Topics:
    return Topics(admin)


@pytest.fixture
def topic(topics: Topics) -> str:
    """One partition, default configuration."""
    return topics.create()


@pytest.fixture
def group(admin: RawClient) -> str:
    """A group id whose coordinator is ready: looking it up creates the offsets topic."""
    name = f"g-{uuid.uuid4().hex}"

    def ready() -> None:
        (row,) = admin.call("find_coordinator", 4, coordinator_keys=[name])["coordinators"]
        assert row["error_code"] == ErrorCode.NONE

    eventually_passes(ready)
    return name


@pytest.fixture
def raw(bootstrap: str) -> Iterator[RawClient]:
    with RawClient(bootstrap) as client:
        yield client


@pytest.fixture(scope="session")
def open_clients(bootstrap: str) -> Iterator[dict[str, Client]]:
    opened: dict[str, Client] = {}
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture(params=CLIENTS)
def client(
    request: pytest.FixtureRequest, bootstrap: str, open_clients: dict[str, Client]
) -> Client:
    """Every client in turn; `@pytest.mark.parametrize("client", [...], indirect=True)` for some."""
    name = request.param
    if name not in open_clients:
        try:
            open_clients[name] = open_client(name, bootstrap)
        except Unavailable as reason:
            pytest.skip(f"this client cannot be had here: {reason}")
    return open_clients[name]
