"""One server for the whole session, and a node of its own for each test.

`ZOOKEEPER` selects it:

- `broker`, the default: a broker of ours as a process, over its own Raft;
- `brokers`: the second of three brokers of ours;
- `alone`: our server without a broker, in a thread, with short sessions;
- `apache`: a real ZooKeeper from Maven artefacts; `debian`: the one of Debian's package;
- `host:port`: a running one (`python -m kafkaesque.testing.zookeeper --port N`).

A test that fails against the real ZooKeeper is wrong.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from tests.conformance_zookeeper.brokers import Brokers
from tests.conformance_zookeeper.opened import opened
from tests.conformance_zookeeper.raw import RawClient
from tests.conformance_zookeeper.serving import ServerThread

from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.cluster_layout import HOST
from kafkaesque.testing.zookeeper import DEBIAN, DEFAULT_VERSION, ZooKeeper, srvr

GIVEN = os.environ.get("ZOOKEEPER", "") or "broker"
IS_BROKER = GIVEN in ("broker", "brokers")
"""A server with ZooKeeper's own limits of session timeouts and its interval of container checks."""
IS_OURS = IS_BROKER or GIVEN == "alone"
REAL_VERSIONS = {"apache": DEFAULT_VERSION, "debian": DEBIAN}
WHITELIST = "ruok,srvr,mntr,dump"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.conformance)
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(scope="session")
def address(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The server under test."""
    if GIVEN == "broker":
        settings = {"coordination.listener": f"{HOST}:0"}
        with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
            yield broker.facts["coordination"]
    elif GIVEN == "brokers":
        yield request.getfixturevalue("running_brokers").address(1)
    elif GIVEN == "alone":
        with ServerThread() as server:
            yield server.address
    elif GIVEN in REAL_VERSIONS:
        settings = {"maxClientCnxns": "60", "4lw.commands.whitelist": WHITELIST}
        with ZooKeeper(REAL_VERSIONS[GIVEN], settings) as zookeeper:
            yield zookeeper.connect_string
    else:
        yield GIVEN


@pytest.fixture(scope="session")
def running_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("brokers")) as running:
        yield running


@pytest.fixture
def brokers(running_brokers: Brokers) -> Iterator[Brokers]:
    """Three brokers that a test may break; afterwards all of them run and vote."""
    yield running_brokers
    running_brokers.target.heal()
    running_brokers.wait_until_all_vote()


@pytest.fixture(scope="session")
def reaping_address(address: str) -> Iterator[str]:
    """The server under test, or one without a broker: brokers check containers once a minute."""
    if not IS_BROKER:
        yield address
        return
    with ServerThread() as server:
        yield server.address


@pytest.fixture
def since_3_9(address: str) -> None:
    """Skips tests of behaviour of ZooKeeper 3.9 that older versions (Debian 12) lack."""
    found = re.search(rb"version: (\d+)\.(\d+)", srvr(int(address.rpartition(":")[2])))
    if not IS_OURS and found is not None and (int(found[1]), int(found[2])) < (3, 9):
        pytest.skip("as ZooKeeper 3.9 does it, and this one is older: run with ZOOKEEPER=apache")


NewClient = Callable[..., KazooClient]


@pytest.fixture
def new_client(address: str) -> Iterator[NewClient]:
    """Starts kazoo clients that are closed after the test."""
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


@contextlib.contextmanager
def own_node(address: str) -> Iterator[str]:
    """A node for this test only; it is deleted afterwards, with everything below it."""
    own = f"/test-{uuid.uuid4().hex[:12]}"
    with opened(address) as keeper:
        keeper.create(own)
        yield own
        with contextlib.suppress(NoAuthError):
            # A test of ACLs may leave nodes that only its own user could remove.
            keeper.delete(own, recursive=True)


@pytest.fixture
def path(address: str) -> Iterator[str]:
    with own_node(address) as own:
        yield own


@pytest.fixture
def reaping_path(reaping_address: str) -> Iterator[str]:
    with own_node(reaping_address) as own:
        yield own


@pytest.fixture
def raw(address: str) -> Iterator[Callable[[], RawClient]]:
    """Opens raw connections that are closed after the test."""
    made: list[RawClient] = []

    def make() -> RawClient:
        made.append(RawClient(address))
        return made[-1]

    yield make
    for connection in made:
        connection.close()
