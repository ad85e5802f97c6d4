"""Start and stop of a whole node: a refused start leaves nothing open."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from uuid import uuid4

import pytest
from tests.waiting import until

from kafkaesque.broker.cluster import cluster
from kafkaesque.broker.cluster.rules.broker_requests import BrokerRegistration
from kafkaesque.broker.cluster.rules.commands import SetBrokerConfigs
from kafkaesque.broker.cluster.rules.controller import Decision, NewTopic
from kafkaesque.broker.joining import Seeds, introduce_broker
from kafkaesque.broker.node import Node
from kafkaesque.broker.partitions.group_coordinator import GROUP_TOPIC
from kafkaesque.broker.replication.rules.peer_hello import PeerIdentity
from kafkaesque.model.errors import DataDirectoryInUse, StorageFailed
from kafkaesque.model.ids import MemberId, NodeId
from kafkaesque.model.settings import broker_config
from kafkaesque.service.clock import SystemClock


async def start_node(directory: Path, **settings: str) -> Node:
    values = {"log.dirs": str(directory), "listeners": "127.0.0.1:0", "http.listener": ""}
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return await Node.start(broker_config({**values, **named}))


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def start_and_stop(directory: Path, **settings: str) -> None:
    node = await start_node(directory, **settings)
    await node.stop()


@pytest.mark.parametrize("setting", ["listeners", "http_listener"])
def test_start_refused_by_a_taken_port_leaves_nothing_open(tmp_path: Path, setting: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        before = open_descriptors()
        with pytest.raises(OSError, match="in use"):
            asyncio.run(start_and_stop(tmp_path, **{setting: address}))
        assert open_descriptors() == before
    asyncio.run(start_and_stop(tmp_path))


def test_start_refused_by_a_taken_port_does_not_make_the_data_unclean(tmp_path: Path) -> None:
    asyncio.run(start_and_stop(tmp_path))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            asyncio.run(start_and_stop(tmp_path, listeners=address))
    assert (tmp_path / "clean-shutdown").exists()


def test_failure_during_the_start_refuses_it_and_leaves_nothing_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail_then_wait(node_cluster: cluster.Cluster, *_: object) -> None:
        node_cluster.links.fail(OSError("the disk is gone"))
        await asyncio.Event().wait()

    asyncio.run(start_and_stop(tmp_path))
    before = open_descriptors()
    with monkeypatch.context() as patched:
        patched.setattr(cluster.Cluster, "register", fail_then_wait)
        with pytest.raises(OSError, match="the disk is gone"):
            asyncio.run(asyncio.wait_for(start_and_stop(tmp_path), 60))
    assert open_descriptors() == before
    assert not (tmp_path / "clean-shutdown").exists()
    asyncio.run(start_and_stop(tmp_path))


def test_lone_node_registers_as_soon_as_it_leads_and_not_when_it_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "RETRY_SECONDS", 3600)
    asyncio.run(start_and_stop(tmp_path))


@pytest.mark.parametrize("at_start", [{}, {"max_connections": "1000"}])
def test_data_directory_with_a_limit_of_no_connections_lets_clients_in_again(
    tmp_path: Path, at_start: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """An older version accepted max.connections=0 and stored it."""

    async def play() -> None:
        node = await start_node(tmp_path)
        limit = SetBrokerConfigs(None, {"max.connections": "0"})
        await node.context.cluster.controller_log.submit(lambda: Decision((limit,), None))
        await node.stop()
        node = await start_node(tmp_path, **at_start)
        _, writer = await asyncio.open_connection(*node.kafka_address)
        await until(lambda: node._listener.connection_count == 1)
        writer.close()
        await node.stop()

    asyncio.run(play())
    assert "ignored a stored dynamic setting: Invalid value 0" in caplog.text


def test_two_nodes_cannot_share_a_directory(tmp_path: Path) -> None:
    async def story() -> None:
        first = await start_node(tmp_path)
        with pytest.raises(DataDirectoryInUse):
            await start_node(tmp_path)
        await first.stop()

    asyncio.run(story())


def test_stop_and_start_leave_no_descriptor_and_no_thread(tmp_path: Path) -> None:
    import threading

    asyncio.run(start_and_stop(tmp_path))
    before, threads = open_descriptors(), threading.active_count()
    for _ in range(3):
        asyncio.run(start_and_stop(tmp_path))
    assert open_descriptors() == before
    assert threading.active_count() == threads


def test_broker_that_still_loads_groups_is_healthy_and_not_ready(tmp_path: Path) -> None:
    async def story() -> None:
        node = await start_node(tmp_path, offsets_topic_num_partitions="1")
        try:
            await node.context.cluster.create_topics([NewTopic(GROUP_TOPIC)])
            await until(lambda: any(host.registry for host in node.context.groups))
            assert node.pages.ready().status == 200
            (host,) = node.context.groups
            registry, host.registry = host.registry, None
            assert node.pages.health().status == 200
            page = node.pages.ready()
            assert page.status == 503
            assert page.body == b"loading the groups of 1 coordinator partition(s)\n"
            host.registry = registry
        finally:
            await node.stop()

    asyncio.run(story())


@pytest.mark.parametrize(("seconds_ago", "status"), [(0.0, 503), (9.0, 503), (11.0, 200)])
def test_broker_whose_disk_refused_a_write_lately_is_healthy_and_not_ready(
    tmp_path: Path, seconds_ago: float, status: int
) -> None:
    async def story() -> None:
        node = await start_node(tmp_path)
        try:
            node.context.stats.refused_by_disk(node.context.clock.monotonic() - seconds_ago)
            assert node.pages.health().status == 200
            page = node.pages.ready()
            assert page.status == status
            assert (b"the disk refuses writes" in page.body) is (status == 503)
        finally:
            await node.stop()

    asyncio.run(story())


def test_broker_without_room_for_the_controllers_log_is_healthy_and_not_ready(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        node = await start_node(tmp_path)
        try:
            backlog = node.context.cluster.controller_log.replica._backlog
            backlog.refused(StorageFailed("No space left on device"))
            assert node.pages.health().status == 200
            page = node.pages.ready()
            assert (page.status, b"no room for the controller's log" in page.body) == (503, True)
            backlog.refusal = None
            assert node.pages.ready().status == 200
        finally:
            await node.stop()

    asyncio.run(story())


def test_broker_that_gave_up_is_neither_healthy_nor_ready(tmp_path: Path) -> None:
    async def story() -> None:
        node = await start_node(tmp_path)
        try:
            node._background.fail(OSError("the disk is gone"))
            for page in (node.pages.health(), node.pages.ready()):
                assert page.status == 503
                assert page.body == b"failed: the disk is gone\n"
        finally:
            await node.stop()

    asyncio.run(story())


def test_broker_that_registers_and_never_answers_gets_no_vote(tmp_path: Path) -> None:
    """With its vote a lone broker would have no majority, and so no controller, for ever."""

    async def story() -> None:
        node, loop = await start_node(tmp_path), asyncio.get_running_loop()
        try:
            cluster = node.context.cluster
            me, ghost = PeerIdentity(NodeId(7), 0, "", 0), MemberId(7)
            request = BrokerRegistration(7, uuid4(), "127.0.0.1", 1, None, 0)
            seeds = Seeds([str(node.kafka_address)])
            await introduce_broker(seeds, me, request, loop, SystemClock())
            replica = cluster.controller_log.replica
            await until(lambda: ghost in replica.membership.learners)
            for number in range(3):
                await cluster.create_topics([NewTopic(f"t{number}")])
                await cluster.members.advance()
            assert replica.membership.voters == (MemberId(0),)
        finally:
            await node.stop()

    asyncio.run(asyncio.wait_for(story(), 60))
