"""The service over a log shared by several servers: what must hold when a client moves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from kazoo.client import KazooClient
from tests.broker.coordination.cluster import CONFIG, Cluster
from tests.conformance_zookeeper.raw import Closed, RawClient, body, create_body
from tests.waiting import eventually

from kafkaesque.testing.clock import ManualClock

CREATE, EXISTS, GET, SET, SYNC, PING, SET_WATCHES = 1, 3, 4, 5, 9, 11, 101
NO_NODE = -101


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as cluster:
        yield cluster


@pytest.fixture
def timeless() -> Iterator[Cluster]:
    """A cluster with a manual clock."""
    with Cluster(3, clock=ManualClock()) as cluster:
        yield cluster


def opened(cluster: Cluster, number: int) -> RawClient:
    client = RawClient(cluster.address(number))
    client.connect()
    return client


def test_follower_serves_writes_reads_and_watches(cluster: Cluster) -> None:
    with opened(cluster, 1) as one, opened(cluster, 2) as two:
        one.ask(CREATE, create_body("/a", b"1"))
        assert two.ask(SYNC, body("/a")).code == 0
        assert two.ask(GET, body("/a", True)).reader.buffer() == b"1"
        one.ask(SET, body("/a", b"2", -1))
        event = two.receive()
        assert (event.xid, event.body[12:]) == (-1, b"/a")


def test_client_that_moves_to_a_lagging_server_is_refused_until_it_caught_up(
    cluster: Cluster,
) -> None:
    with RawClient(cluster.address(0)) as ahead:
        session = ahead.connect()
        cluster.hold(2, True)
        seen = ahead.ask(CREATE, create_body("/a", b"new")).zxid
    with RawClient(cluster.address(2)) as moved, pytest.raises(Closed):
        moved.connect(session_id=session.session_id, password=session.password, last_zxid=seen)
    cluster.hold(2, False)
    with RawClient(cluster.address(2)) as moved:
        again = moved.connect(
            session_id=session.session_id, password=session.password, last_zxid=seen
        )
        assert again == session
        assert moved.ask(GET, body("/a", False)).reader.buffer() == b"new"


def test_session_that_moved_is_fenced_on_its_old_server_even_if_that_lags(
    cluster: Cluster,
) -> None:
    with RawClient(cluster.address(2)) as old, RawClient(cluster.address(1)) as new:
        session = old.connect()
        old.ask(CREATE, create_body("/a", b"old"))
        cluster.hold(2, True)
        new.connect(session_id=session.session_id, password=session.password)
        old.send(SET, body("/a", b"from the past", -1))
        new.ask(SET, body("/a", b"new", -1))
        cluster.hold(2, False)
        assert old.is_closed()
        assert new.ask(GET, body("/a", False)).reader.buffer() == b"new"


def test_sync_on_a_lagging_server_waits_for_what_was_committed(cluster: Cluster) -> None:
    with opened(cluster, 0) as writer, opened(cluster, 1) as reader:
        cluster.hold(1, True)
        writer.ask(CREATE, create_body("/a"))
        assert reader.ask(EXISTS, body("/a", False)).code == NO_NODE
        reader.send(SYNC, body("/a"), xid=70)
        reader.send(EXISTS, body("/a", False), xid=71)
        cluster.hold(1, False)
        assert [(reply.xid, reply.code) for reply in (reader.receive(), reader.receive())] == [
            (70, 0),
            (71, 0),
        ]


def test_pings_on_a_follower_keep_the_session_alive_on_the_leader(timeless: Cluster) -> None:
    with RawClient(timeless.address(2)) as client, opened(timeless, 0) as other:
        client.connect(timeout_ms=400)
        client.ask(CREATE, create_body("/e", flags=1))
        for _ in range(12):
            timeless.pass_time(0.1)  # the ping interval of a client with such a timeout
            assert client.ask(PING, b"", -2).code == 0
            assert other.ask(PING, b"", -2).code == 0
        timeless.pass_time(0.35)
        assert other.ask(EXISTS, body("/e", False)).code == 0
        timeless.pass_time(0.3)
        assert other.ask(EXISTS, body("/e", False)).code == NO_NODE
        assert client.is_closed()


def test_session_of_a_client_whose_socket_is_not_read_stays_alive() -> None:
    """Its pings wait in the socket after requests that this server cannot finish."""
    config = replace(CONFIG, max_outstanding_requests=4)
    with Cluster(2, config, ManualClock()) as cluster, RawClient(cluster.address(1)) as busy:
        busy.connect(timeout_ms=400)
        busy.ask(CREATE, create_body("/e", flags=1))
        cluster.hold(1, True)
        sent = [busy.send(SET, body("/e", b"x", -1)) for _ in range(10)]
        eventually(lambda: cluster.outstanding(1) >= config.max_outstanding_requests)
        cluster.pass_time(0.9)  # more than the timeout and its slack
        cluster.hold(1, False)
        assert [busy.receive()[::2] for _ in sent] == [(xid, 0) for xid in sent]


@pytest.mark.parametrize("elected_number", [0, 2])
def test_new_leader_gives_every_session_its_whole_timeout(
    timeless: Cluster, elected_number: int
) -> None:
    """Also the old one if it is elected again: it may have been another for a while."""
    with RawClient(timeless.address(1)) as client, opened(timeless, 0) as other:
        client.connect(timeout_ms=800)
        client.ask(CREATE, create_body("/e", flags=1))
        timeless.pass_time(0.5)
        timeless.elect(elected_number)
        timeless.pass_time(0.75)
        assert other.ask(EXISTS, body("/e", False)).code == 0
        timeless.pass_time(0.4)
        assert other.ask(EXISTS, body("/e", False)).code == NO_NODE


def test_server_without_a_quorum_disconnects_its_clients_and_accepts_none(cluster: Cluster) -> None:
    with opened(cluster, 1) as client:
        client.ask(CREATE, create_body("/a"))
        cluster.cut(1)
        assert client.is_closed()
        with pytest.raises((Closed, OSError)), RawClient(cluster.address(1)) as late:
            late.connect()
        with opened(cluster, 2) as elsewhere:
            elsewhere.ask(SET, body("/a", b"majority", -1))
        cluster.cut()
        with opened(cluster, 1) as back:
            back.ask(SYNC, body("/a"))
            assert back.ask(GET, body("/a", False)).reader.buffer() == b"majority"


def test_server_that_installed_a_snapshot_disconnects_its_clients(cluster: Cluster) -> None:
    with opened(cluster, 0) as writer, opened(cluster, 2) as watcher:
        writer.ask(CREATE, create_body("/a"))
        watcher.ask(SYNC, body("/a"))
        watcher.ask(GET, body("/a", True))
        cluster.hold(2, True)
        writer.ask(SET, body("/a", b"2", -1))

        def jump() -> None:
            leader, lagging = cluster.replicas[0], cluster.replicas[2]
            lagging.coordinator.restore(leader.coordinator.snapshot())
            lagging.applied = leader.applied

        cluster.run(jump)
        cluster.hold(2, False)
        assert watcher.is_closed()


def test_kazoo_keeps_its_session_and_its_lock_when_its_server_stops(cluster: Cluster) -> None:
    hosts = [cluster.address(number) for number in range(3)]
    holder = KazooClient(hosts=hosts[1], timeout=5.0)
    rival = KazooClient(hosts=hosts[2], timeout=5.0)
    try:
        holder.start(10)
        rival.start(10)
        holder.set_hosts(",".join(hosts))
        assert holder.Lock("/lock", "holder").acquire(timeout=5)
        session = holder.client_id
        cluster.stop_server(1)
        assert holder.retry(holder.get_children, "/lock")
        assert holder.client_id == session
        assert not rival.Lock("/lock", "rival").acquire(blocking=False)
        holder.stop()
        assert rival.Lock("/lock", "rival").acquire(timeout=5)
    finally:
        for client in (holder, rival):
            client.stop()
            client.close()


def test_replicas_are_the_same_after_all(cluster: Cluster) -> None:
    with opened(cluster, 0) as one, opened(cluster, 1) as two:
        for number, client in enumerate((one, two) * 10):
            client.ask(CREATE, create_body(f"/n-{number}", flags=number % 2))
    snapshots = {cluster.run(replica.coordinator.snapshot) for replica in cluster.replicas}
    assert len(snapshots) == 1
