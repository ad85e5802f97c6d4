"""The text listener by itself: rate limits, and the addresses it accepts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest

from kafkaesque.broker.cluster.cluster import Cluster
from kafkaesque.broker.server.addresses import guarded_address
from kafkaesque.broker.text.connection import LINES_AT_ONCE, LINES_PER_SECOND
from kafkaesque.broker.text.server import TextServer
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import broker_config
from kafkaesque.testing.broker_process import BrokerNotReady, BrokerProcess
from kafkaesque.testing.clock import ManualClock

WITHIN_S = 60.0


class TimePasser:
    """A clock that only a held-back connection moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.waits_s: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.waits_s.append(seconds)
        self.clock.advance(seconds)


async def no_kafka(_request: bytes) -> bytes:
    raise AssertionError("an invalid line causes no request to the broker")


async def ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: int, line: bytes = b"X\r\n"
) -> None:
    """Send `count` lines at once, and read as many answers."""
    writer.write(line * count)
    for _ in range(count):
        assert (await reader.readline()).startswith(b"ERR BAD_COMMAND")


def test_client_that_sends_too_many_lines_is_read_at_the_rate() -> None:
    async def story() -> None:
        time = TimePasser()
        # No line here needs the cluster.
        server = TextServer(cast(Cluster, None), no_kafka, time.clock, time.sleep)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.address)
        try:
            assert (await reader.readline()).startswith(b"OK kafkaesque")
            await ask(reader, writer, LINES_AT_ONCE)
            assert time.waits_s == []
            await ask(reader, writer, 500)
            assert sum(time.waits_s) == pytest.approx(500 / LINES_PER_SECOND)
            assert len(time.waits_s) == 500
            # A second of silence, and as many lines pass without a wait.
            time.clock.advance(1.0)
            time.waits_s.clear()
            await ask(reader, writer, LINES_PER_SECOND)
            assert sum(time.waits_s) == pytest.approx(0.0, abs=1e-9)
            await ask(reader, writer, 1)
            assert sum(time.waits_s) == pytest.approx(1 / LINES_PER_SECOND)
        finally:
            writer.close()
            await server.stop()

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_pace_of_one_client_is_none_of_anothers() -> None:
    async def story() -> None:
        time = TimePasser()
        server = TextServer(cast(Cluster, None), no_kafka, time.clock, time.sleep)
        await server.start("127.0.0.1", 0)
        links = [await asyncio.open_connection(*server.address) for _ in range(2)]
        try:
            for reader, writer in links:
                await reader.readline()
                await ask(reader, writer, LINES_AT_ONCE)
            assert time.waits_s == []
        finally:
            for _, writer in links:
                writer.close()
            await server.stop()

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_broker_refuses_to_start_where_strangers_could_type(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path, {"text.listener": "0.0.0.0:0"})
    refusal = r"text\.listener: 0\.0\.0\.0 can be reached from other"
    try:
        with pytest.raises(BrokerNotReady, match=refusal):
            broker.start()
    finally:
        broker.stop()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_loopback_needs_no_word(host: str) -> None:
    config = broker_config({"log.dirs": "x"})
    assert guarded_address(config, f"{host}:9100", "text.listener").port == 9100


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "[::]", "example.com"])
def test_any_other_address_needs_one(host: str) -> None:
    config = broker_config({"log.dirs": "x"})
    with pytest.raises(InvalidConfig, match=r"text\.listener"):
        guarded_address(config, f"{host}:9100", "text.listener")
    insecure = broker_config({"log.dirs": "x", "insecure": "true"})
    assert guarded_address(insecure, f"{host}:9100", "text.listener").port == 9100
