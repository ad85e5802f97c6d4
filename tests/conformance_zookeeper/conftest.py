"""One server for the whole session, and a node of its own for each test.

`ZOOKEEPER=host:port` names a running ZooKeeper (`python -m kafkaesque.testing.zookeeper --port N`),
`ZOOKEEPER=apache` starts one from Maven artefacts, `ZOOKEEPER=brokers` three brokers of ours;
otherwise our server is started with a journal of its own and short sessions. An expectation that the real one does not meet is a wrong expectation.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from kafkaesque.testing.zookeeper import ZooKeeper

from .brokers import Brokers
from .raw import RawClient
from .serving import ServerThread

GIVEN = os.environ.get("ZOOKEEPER", "")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The server under test."""
    if GIVEN == "apache":
        with ZooKeeper(settings={"maxClientCnxns": "60"}) as zookeeper:
            yield zookeeper.connect_string
    elif GIVEN == "brokers":
        with Brokers(tmp_path_factory.mktemp("brokers")) as brokers:
            yield brokers.address(1)
    elif GIVEN:
        yield GIVEN
    else:
        with ServerThread(tmp_path_factory.mktemp("coordination")) as server:
            yield server.address


NewClient = Callable[..., KazooClient]


@pytest.fixture
def new_client(address: str) -> Iterator[NewClient]:
    """Makes started kazoo clients that are gone after the test."""
    clients: list[KazooClient] = []

    def make(timeout: float = 10.0, root: str = "", **options: object) -> KazooClient:
        client = KazooClient(hosts=address + root, timeout=timeout, **options)
        clients.append(client)
        client.start(timeout=10)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


@pytest.fixture
def client(new_client: NewClient) -> KazooClient:
    return new_client()


@pytest.fixture
def path(address: str) -> Iterator[str]:
    """A node that only this test has; all below it goes afterwards."""
    own = f"/test-{uuid.uuid4().hex[:12]}"
    keeper = KazooClient(hosts=address)
    keeper.start(timeout=10)
    keeper.create(own)
    yield own
    with contextlib.suppress(NoAuthError):
        # A test of access may leave what only its own user could remove.
        keeper.delete(own, recursive=True)
    keeper.stop()
    keeper.close()


@pytest.fixture
def raw(address: str) -> Iterator[Callable[[], RawClient]]:
    """Makes raw connections that are closed after the test."""
    opened: list[RawClient] = []

    def make() -> RawClient:
        opened.append(RawClient(address))
        return opened[-1]

    yield make
    for connection in opened:
        connection.close()
