"""kazoo on a cluster of three brokers while one, two or all of them are killed or stopped."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry
from tests.conformance_zookeeper.brokers import Brokers
from tests.conformance_zookeeper.collected import Collected
from tests.conformance_zookeeper.conftest import IS_BROKER
from tests.conformance_zookeeper.raw import Closed, RawClient, body, create_body
from tests.waiting import eventually

pytestmark = pytest.mark.skipif(
    not IS_BROKER, reason="about brokers of ours; run without ZOOKEEPER"
)

CREATE, GET, SET = 1, 4, 5
SESSION_S = 10.0


NewClient = Callable[..., KazooClient]


@pytest.fixture
def new_client(brokers: Brokers) -> Iterator[NewClient]:
    clients: list[KazooClient] = []

    def make(hosts: str | None = None, timeout: float = SESSION_S) -> KazooClient:
        client = KazooClient(
            hosts=hosts or brokers.addresses,
            timeout=timeout,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1, max_delay=0.2),
            command_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=1, max_delay=0.2),
        )
        clients.append(client)
        client.start(timeout=15)
        return client

    yield make
    for client in clients:
        client.stop()
        client.close()


def server_of(brokers: Brokers, client: KazooClient) -> int:
    """The broker that a client is connected to."""
    return brokers.node_at(client._connection._socket.getpeername()[1])


def test_session_and_its_nodes_survive_the_kill_of_the_serving_broker(
    brokers: Brokers, new_client: NewClient
) -> None:
    client = new_client()
    session = client.client_id
    client.create("/alive", b"", ephemeral=True)
    serving = server_of(brokers, client)
    brokers.kill(serving)
    client.retry(client.set, "/alive", b"still")
    assert client.client_id == session
    assert server_of(brokers, client) != serving
    other = new_client()
    other.sync("/alive")
    assert other.get("/alive")[0] == b"still"


def test_ephemeral_is_removed_with_its_session_and_not_before(
    brokers: Brokers, new_client: NewClient
) -> None:
    with RawClient(brokers.address(0)) as silent:
        session = silent.connect(4000)
        assert silent.ask(CREATE, create_body("/brief", b"", flags=1)).code == 0
        began = time.monotonic()
    watcher = new_client(brokers.address(1))
    gone: Collected[object] = Collected()
    assert watcher.exists("/brief", watch=gone) is not None
    gone.wait(1, timeout_s=20)
    assert session.timeout_ms == 4000
    assert time.monotonic() - began >= 4.0
    assert watcher.exists("/brief") is None


def test_ephemeral_survives_a_change_of_leader(brokers: Brokers, new_client: NewClient) -> None:
    """A new leader restarts the timeout of every session."""
    leader = brokers.leader()
    follower = (leader + 1) % 3
    client = new_client(brokers.address(follower), timeout=4.0)
    client.create("/kept", b"", ephemeral=True)
    lost: Collected[str] = Collected()
    client.add_listener(lambda state: lost(state) if state == KazooState.LOST else None)
    brokers.kill(leader)
    assert brokers.leader() != leader
    # Longer than the timeout: a silent session would have expired by now.
    assert not threading.Event().wait(5.0)
    assert client.exists("/kept") is not None
    assert lost.items == []


def test_lock_is_never_held_twice_while_brokers_die(
    brokers: Brokers, new_client: NewClient
) -> None:
    holders = 0
    overlaps = 0
    turns: Collected[int] = Collected()
    ended = threading.Event()
    guard = threading.Lock()

    def work(number: int) -> None:
        nonlocal holders, overlaps
        client = new_client(timeout=30.0)
        lock = client.Lock("/lock", str(number))
        while not ended.is_set():
            with contextlib.suppress(KazooException, KazooTimeoutError):
                if not lock.acquire(timeout=20):
                    continue
                with guard:
                    holders += 1
                    overlaps += holders > 1
                ended.wait(0.01)
                with guard:
                    holders -= 1
                turns(number)
                lock.release()

    threads = [threading.Thread(target=work, args=(n,), daemon=True) for n in range(3)]
    for thread in threads:
        thread.start()
    for victim in (0, 1, 2):
        before = len(turns.items)
        turns.wait(before + 3, timeout_s=40)
        brokers.kill(victim)
        turns.wait(len(turns.items) + 3, timeout_s=40)
        brokers.start(victim)
    ended.set()
    for thread in threads:
        thread.join(40)
        assert not thread.is_alive()
    assert overlaps == 0


def test_election_hands_over_when_the_leading_client_ends(
    brokers: Brokers, new_client: NewClient
) -> None:
    led: Collected[str] = Collected()
    clients = {name: new_client() for name in "ab"}
    let_go = {name: threading.Event() for name in "ab"}

    def run(name: str) -> None:
        with contextlib.suppress(KazooException):
            clients[name].Election("/election", name).run(
                lambda: (led(name), let_go[name].wait(30))
            )

    threads = {name: threading.Thread(target=run, args=(name,), daemon=True) for name in "ab"}
    threads["a"].start()
    led.wait(1)
    threads["b"].start()
    eventually(lambda: len(clients["a"].Election("/election").contenders()) == 2)
    # The broker of the leader dies: its session moves, and it stays leader.
    brokers.kill(server_of(brokers, clients["a"]))
    clients["a"].retry(clients["a"].exists, "/election")
    clients["b"].retry(clients["b"].exists, "/election")
    assert led.items == ["a"]
    let_go["a"].set()
    assert led.wait(2) == ["a", "b"]
    let_go["b"].set()


def test_reads_never_go_back_when_a_client_moves(brokers: Brokers, new_client: NewClient) -> None:
    writer = new_client()
    writer.create("/counter", b"0")
    last_zxid, last_value, session = 0, 0, (0, bytes(16))
    for number in range(1, 40):
        writer.set("/counter", b"%d" % number)
        with RawClient(brokers.address(number % 3)) as reader:
            try:
                found = reader.connect(20_000, *session, last_zxid)
            except (Closed, OSError):
                continue  # that broker lags behind what the client has seen, and refuses it
            session = (found.session_id, found.password)
            reply = reader.ask(GET, body("/counter", False))
            value = int(reply.reader.buffer() or b"0")
            assert value >= last_value
            last_zxid, last_value = max(last_zxid, reply.zxid), value
    assert last_value > 0


def test_without_a_quorum_no_client_is_served_and_nothing_is_lost(
    brokers: Brokers, new_client: NewClient
) -> None:
    client = new_client(timeout=30.0)
    client.create("/durable", b"kept")
    serving = server_of(brokers, client)
    others = [node for node in range(3) if node != serving]
    suspended = threading.Event()
    client.add_listener(lambda state: suspended.set() if state == KazooState.SUSPENDED else None)
    for node in others:
        brokers.pause(node)
    assert suspended.wait(15), "a server without a quorum let its client believe in it"
    alone = KazooClient(hosts=brokers.address(serving), timeout=4.0)
    with pytest.raises(KazooTimeoutError):
        alone.start(timeout=2)
    alone.stop()
    alone.close()
    for node in others:
        brokers.resume(node)
    assert client.retry(client.get, "/durable")[0] == b"kept"
    client.retry(client.set, "/durable", b"on")


def test_writes_survive_the_kill_of_all_brokers(brokers: Brokers, new_client: NewClient) -> None:
    client = new_client(timeout=30.0)
    client.ensure_path("/many")
    for number in range(20):
        client.create(f"/many/{number}", b"x")
    brokers.kill(0, 1, 2)
    brokers.start(0, 1, 2)
    again = new_client()
    assert len(again.get_children("/many")) == 20
    with pytest.raises(NoNodeError):
        again.get("/many/20")


def test_write_in_flight_when_its_server_dies_is_applied_at_most_once(
    brokers: Brokers, new_client: NewClient
) -> None:
    client = new_client(timeout=30.0)
    client.create("/appends", b"")
    serving = server_of(brokers, client)
    results = [client.create_async(f"/appends/n-{n}", b"") for n in range(200)]
    brokers.kill(serving)
    done = 0
    for result in results:
        try:
            result.get(20)
            done += 1
        except ConnectionLoss:
            break
    other = new_client()
    other.sync("/appends")
    found = sorted(int(name[2:]) for name in other.get_children("/appends"))
    # In order, without a gap, and everything that was acknowledged.
    assert found == list(range(len(found)))
    assert len(found) >= done
