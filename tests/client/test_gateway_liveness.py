from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.waiting import until

from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import LogUnavailable
from kafkaesque.events.gateway import GATEWAYS_NODE
from kafkaesque.service.coordination import CoordinationSession
from kafkaesque.testing.broker_process import BrokerProcess


def test_without_a_coordination_service_every_gateway_counts_as_alive() -> None:
    async def story() -> None:
        gateways = GatewayLiveness("", "test")
        await gateways.start()
        assert gateways.is_alive("gw-1")
        await gateways.stop()

    asyncio.run(story())


def test_a_coordination_service_that_does_not_answer_fails_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kafkaesque.service.coordination.CONNECT_SECONDS_MAX", 0.1)

    async def story() -> None:
        with pytest.raises(LogUnavailable, match=r"no ZooKeeper at 127\.0\.0\.1:1"):
            await GatewayLiveness("127.0.0.1:1", "test").start()

    asyncio.run(story())


@pytest.mark.story
def test_a_gateway_is_alive_while_its_node_exists(tmp_path: Path) -> None:
    async def story(hosts: str) -> None:
        gateways = GatewayLiveness(hosts, "test")
        await gateways.start()
        try:
            assert gateways.names == frozenset()
            session = await CoordinationSession.open(hosts, session_seconds=5.0, name="gw-1")
            await session.register(f"{GATEWAYS_NODE}/gw-1", b"{}")
            await until(lambda: gateways.is_alive("gw-1"))
            assert not gateways.is_alive("gw-2")
            await session.close()
            await until(lambda: not gateways.is_alive("gw-1"))
        finally:
            await gateways.stop()

    settings = {"flush": "never", "coordination.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path, settings) as broker:
        asyncio.run(asyncio.wait_for(story(broker.facts["coordination"]), 60.0))
