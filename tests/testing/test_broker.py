"""A broker in this process: use, settings, cleanup and errors."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.testing import leftovers
from tests.testing.leftovers import QUESTIONS
from tests.waiting import eventually

from kafkaesque.model.errors import InvalidConfig, TopicAlreadyExists
from kafkaesque.model.ids import TimestampMs
from kafkaesque.testing import Broker, BrokerFailed, Received
from kafkaesque.testing.client import SharedClient


def produce(broker: Broker, topic: str, *values: str) -> list[Received]:
    with SharedClient(broker.bootstrap_servers) as client:
        return client.produce(topic, [{"value": value} for value in values], within_s=10)


def values_in(broker: Broker, topic: str) -> list[str | None]:
    with SharedClient(broker.bootstrap_servers) as client:
        (end,) = client.end_offsets(topic, 1)
        records = client.read(topic, {0: 0}, deadline=float("inf"), count=end)
        return [record.text for record in records]


def partition_count(broker: Broker, topic: str) -> int:
    with SharedClient(broker.bootstrap_servers) as client:
        return client.partition_count(topic)


@pytest.fixture
def taken_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_client_can_use_it_inside_the_with_block() -> None:
    with Broker() as broker:
        produce(broker, "created-on-first-use", "a", "b")
        assert values_in(broker, "created-on-first-use") == ["a", "b"]


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_thread_descriptor_or_directory_remains(name: str) -> None:
    run = subprocess.run(
        [sys.executable, leftovers.__file__, name], capture_output=True, text=True, timeout=120
    )
    assert run.returncode == 0, run.stderr


def test_stop_with_a_consumer_in_a_long_poll_does_not_wait_for_it() -> None:
    with Broker() as broker, SharedClient(broker.bootstrap_servers) as client:
        broker.create_topic("t")
        client.produce("t", [{"value": "a"}], within_s=10)
        assert client.read("t", {0: 0}, deadline=float("inf"), count=1)
        broker.stop()


def test_restart_keeps_records_and_addresses() -> None:
    with Broker() as broker:
        addresses = broker.bootstrap_servers, broker.http_address
        produce(broker, "t", "before")
        broker.restart()
        assert (broker.bootstrap_servers, broker.http_address) == addresses
        produce(broker, "t", "after")
        assert values_in(broker, "t") == ["before", "after"]


def test_stopped_broker_starts_again_empty() -> None:
    broker = Broker().start()
    produce(broker, "t", "a")
    broker.stop()
    with broker:
        assert partition_count(broker, "t") == 0


def test_given_data_directory_is_kept(tmp_path: Path) -> None:
    with Broker(data=tmp_path) as broker:
        assert broker.data == tmp_path
        produce(broker, "t", "kept")
    with Broker(data=str(tmp_path)) as broker:
        assert values_in(broker, "t") == ["kept"]


def test_two_brokers_are_independent() -> None:
    with Broker() as one, Broker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        produce(one, "t", "in one")
        produce(other, "t", "in the other")
        assert values_in(one, "t") == ["in one"]
        assert values_in(other, "t") == ["in the other"]


def test_async_with_lets_the_callers_loop_run() -> None:
    async def use() -> list[str]:
        happened = []
        loop = asyncio.get_running_loop()
        loop.call_soon(happened.append, "other work")
        async with Broker() as broker:
            happened.append("ready")
            await asyncio.to_thread(produce, broker, "t", "a")
            loop.call_soon(happened.append, "other work")
        happened.append("stopped")
        return happened

    assert asyncio.run(use()) == ["other work", "ready", "other work", "stopped"]


# -- settings -------------------------------------------------------------------------------------


def test_settings_take_plain_values_and_override_the_development_defaults() -> None:
    settings = {
        "num.partitions": 3,
        "offsets.topic.num.partitions": None,
        "log.cleanup.policy": ["delete"],
        "http.listener": "",
    }
    with Broker(settings=settings) as broker:
        produce(broker, "t", "a")
        assert partition_count(broker, "t") == 3
        assert broker.http_address is None


def test_create_topic_takes_configs_with_underscores() -> None:
    with Broker() as broker:
        broker.create_topic("t", 2, retention_ms=1000, cleanup_policy=["compact", "delete"])
        broker.create_topic("u", **{"retention.ms": -1})
        assert [partition_count(broker, name) for name in "tu"] == [2, 1]
        with pytest.raises(TopicAlreadyExists, match="'t'"):
            broker.create_topic("t")
        with pytest.raises(InvalidConfig, match=r"no\.such"):
            broker.create_topic("v", no_such=1)


def test_delete_topics_ignores_missing_topics() -> None:
    with Broker() as broker:
        broker.create_topic("t")
        broker.delete_topics(["t", "never"])
        assert partition_count(broker, "t") == 0


def test_http_address_serves_readiness() -> None:
    with (
        Broker() as broker,
        urllib.request.urlopen(f"http://{broker.http_address}/readyz") as answer,
    ):
        assert answer.read() == b"ready\n"


# -- failures -------------------------------------------------------------------------------------


def test_address_in_use_is_named(taken_address: str) -> None:
    with pytest.raises(BrokerFailed, match=f"an address is in use .*{taken_address}.*port 0"):
        Broker(settings={"listeners": taken_address}).start()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num.partition": 4}, "Unknown broker setting 'num.partition'"),
        ({"num.partitions": "many"}, "Invalid value many for configuration num.partitions"),
        ({"flush": "sometimes"}, "one of: always, never"),
        ({"listeners": "0.0.0.0:0"}, "can be reached from other machines"),
        ({"http.listener": "0.0.0.0:0"}, "http.listener: 0.0.0.0 can be reached"),
    ],
)
def test_bad_setting_is_named(settings: dict[str, object], message: str) -> None:
    with pytest.raises(BrokerFailed, match=message):
        Broker(settings=settings).start()  # type: ignore[arg-type]


def test_data_directory_in_use_is_named(tmp_path: Path) -> None:
    with Broker(data=tmp_path), pytest.raises(BrokerFailed, match=f"{tmp_path} is in use"):
        Broker(data=tmp_path).start()


def test_use_before_start_and_second_start_are_refused() -> None:
    broker = Broker()
    with pytest.raises(RuntimeError, match="not running"):
        broker.create_topic("t")
    broker.stop()
    with broker, pytest.raises(RuntimeError, match="already running"):
        broker.start()


class BreakableClock:
    """A clock that can stop working, and with it the broker's background work."""

    def __init__(self) -> None:
        self.broken = False

    def wall_ms(self) -> TimestampMs:
        if self.broken:
            raise OSError("the clock fell off the wall")
        return TimestampMs(0)

    def monotonic(self) -> float:
        return 0.0


def fail(broker: Broker, clock: BreakableClock) -> None:
    def has_failed() -> bool:
        try:
            broker.check()
        except BrokerFailed:
            return True
        return False

    clock.broken = True
    eventually(has_failed)


def test_broker_that_failed_raises_at_the_end() -> None:
    clock = BreakableClock()
    settings = {"log.retention.check.interval.ms": 1}
    with (
        pytest.raises(BrokerFailed, match="failed while it ran: the clock fell"),
        Broker(settings=settings, clock=clock) as broker,
    ):
        fail(broker, clock)


def test_broker_that_failed_disconnects_its_clients() -> None:
    clock = BreakableClock()
    broker = Broker(settings={"log.retention.check.interval.ms": 1}, clock=clock).start()
    host, port = broker.bootstrap_servers.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        fail(broker, clock)
        assert connection.recv(1) == b""
    with pytest.raises(BrokerFailed):
        broker.stop()


def test_failure_of_the_broker_does_not_hide_the_failure_of_the_test() -> None:
    clock = BreakableClock()

    def run_test() -> None:
        with Broker(settings={"log.retention.check.interval.ms": 1}, clock=clock) as broker:
            fail(broker, clock)
            raise ValueError("the test's own")

    with pytest.raises(ValueError, match="the test's own") as raised:
        run_test()
    assert raised.value.__notes__ == ["the broker failed while it ran: the clock fell off the wall"]


# -- processes ------------------------------------------------------------------------------------


def test_forked_child_neither_stops_the_broker_nor_holds_its_port() -> None:
    with Broker() as broker:
        data = broker.data
        ready, say_ready = os.pipe()
        wait, say_end = os.pipe()
        child = os.fork()
        if child == 0:
            broker.stop()
            os.write(say_ready, b"x")
            os.read(wait, 1)
            os._exit(0)
        try:
            os.read(ready, 1)
            assert data.is_dir()
            broker.restart()
            produce(broker, "t", "a")
        finally:
            os.write(say_end, b"x")
            os.waitpid(child, 0)
            for end in (ready, say_ready, wait, say_end):
                os.close(end)


@pytest.mark.parametrize(
    "program",
    [
        pytest.param("broker = Broker().start(); print(broker.data)", id="until the process ends"),
        pytest.param("print(Broker().start().data)", id="until it is collected"),
    ],
)
def test_broker_that_was_not_stopped_ends_silently(program: str) -> None:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"from kafkaesque.testing import Broker; {program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert run.stderr == ""
    assert not Path(run.stdout.strip()).exists()
