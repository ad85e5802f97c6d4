"""Real processes: gateways on our broker and its coordination, or on KAFKA and ZOOKEEPER."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from tests.conformance_zookeeper.opened import opened
from tests.gateway.logs import KAFKA
from tests.gateway.stage import EchoBackEnd, take
from tests.waiting import until

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.edge.client import EdgeClient
from kafkaesque.edge.client_state import Credentials
from kafkaesque.events.gateway import ROUTES_NODE
from kafkaesque.testing.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """bootstrap.servers and zookeeper.connect."""
    if KAFKA is not None:
        yield KAFKA, os.environ.get("ZOOKEEPER", "")
        return
    settings = {"coordination.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.bootstrap_servers, broker.facts["coordination"]


class Process:
    """A running `kafkaesque gateway`."""

    def __init__(self, places: tuple[str, str], data: Path, name: str, *more: str) -> None:
        bootstrap, zookeeper = places
        command = [
            sys.executable, "-m", "kafkaesque.cli.main", "gateway", "-b", bootstrap,
            "--data", str(data / name), "--name", name, "--end-with-stdin",
            "--set", f"zookeeper.connect={zookeeper}",
            "--set", f"auth.secret.file={data / 'key'}",
        ]  # fmt: skip
        listen = () if "--take-over" in more else ("--listen", "127.0.0.1:0")
        self.process = subprocess.Popen(
            [*command, *listen, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready "), line
        self.facts = dict(word.split("=", 1) for word in line.split()[1:])

    @property
    def address(self) -> str:
        return self.facts["tcp"]

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        return code


def new_user(name: str) -> Credentials:
    return Credentials(name=name, password="a password", register=True)


def test_story_of_two_gateways(places: tuple[str, str], tmp_path: Path) -> None:
    """Accounts, messages, handover, kill -9, drain and routes, on one set of processes."""

    async def story() -> None:
        log = KafkaLog(places[0])
        async with EchoBackEnd(log), EchoBackEnd(log, "v2") as newer:
            first = await asyncio.to_thread(Process, places, tmp_path, "gw-1")
            second = await asyncio.to_thread(Process, places, tmp_path, "gw-2")
            started, both = [first, second], [first.address, second.address]
            suffix = os.urandom(3).hex()
            a, b = f"alice-{suffix}", f"bob-{suffix}"
            alice = EdgeClient([first.address], new_user(a))
            bob = EdgeClient(["ws://" + second.address], new_user(b))
            try:
                await asyncio.gather(alice.start(), bob.start())
                await say(alice, bob, b, "hello")
                if places[1]:
                    assert sorted(alice.welcome.targets) == sorted(both)  # type: ignore[union-attr]

                successor = await asyncio.to_thread(
                    Process, places, tmp_path, "gw-1", "--take-over"
                )
                started.append(successor)
                assert await asyncio.to_thread(first.process.wait, 60) == 0
                assert successor.address == first.address
                await say(alice, bob, b, "after the handover")
                assert alice.counts.disconnects == 0

                successor.process.kill()
                alice.addresses.known.append(second.address)
                await say(alice, bob, b, "after kill -9")
                assert alice.counts.disconnects == 1

                if places[1]:
                    await asyncio.to_thread(set_routes, places[1], BOTH)
                    carol = EdgeClient([second.address], new_user(f"c-{suffix}"),
                                       app_version="v2")  # fmt: skip
                    await carol.start()
                    assert await carol.ask("who") is not None
                    assert {op for _, _, op, _ in newer.commands} == {"account.create", "who"}
                    await carol.close()

                third = await asyncio.to_thread(Process, places, tmp_path, "gw-3")
                started.append(third)
                second.process.terminate()
                alice.addresses.known[:] = [third.address]
                bob.addresses.known[:] = ["ws://" + third.address]
                await say(alice, bob, b, "after the drain")
                assert await asyncio.to_thread(second.process.wait, 60) == 0
                await alice.close()
                await bob.close()
                assert third.end() == 0
                assert not (tmp_path / "gw-3" / "gateway.json").exists()
            finally:
                await alice.close()
                await bob.close()
                for process in started:
                    await asyncio.to_thread(process.end)

    asyncio.run(asyncio.wait_for(story(), 300))


async def say(sender: EdgeClient, receiver: EdgeClient, name: str, text: str) -> None:
    await sender.send("message.send", {"to": name, "text": text})
    [event] = await take(receiver, 1)
    assert event.body["text"] == text
    await take(sender, 1)


BOTH = {"v1": "gw.cmd.v1", "v2": "gw.cmd.v2", "default": "v1"}


def set_routes(zookeeper: str, table: Mapping[str, str]) -> None:
    with opened(zookeeper, timeout_s=30) as client:
        client.ensure_path(ROUTES_NODE)
        client.set(ROUTES_NODE, json.dumps(table).encode())


async def reroute(zookeeper: str, gateway: Process, table: Mapping[str, str]) -> None:
    """Returns when the gateway has read the new routes."""
    await asyncio.to_thread(set_routes, zookeeper, table)
    topics = {version: topic for version, topic in table.items() if version != "default"}
    async with httpx.AsyncClient(base_url=f"http://{gateway.facts['http']}") as http:

        async def is_heard_of() -> bool:
            return (await http.get("/status")).json()["routes"] == topics

        await until(is_heard_of)


@pytest.mark.timeout(400)
def test_connected_clients_follow_the_routes_from_their_next_command_on(
    places: tuple[str, str], tmp_path: Path
) -> None:
    if not places[1]:
        pytest.skip(
            "the routes stand in ZooKeeper, and none is named: run with ZOOKEEPER=host:port"
        )
    suffix = os.urandom(3).hex()

    async def story() -> None:
        log = KafkaLog(places[0])
        async with EchoBackEnd(log) as older, EchoBackEnd(log, "v2") as newer:
            await asyncio.to_thread(set_routes, places[1], {"v1": "gw.cmd.v1", "default": "v1"})
            gateway = await asyncio.to_thread(Process, places, tmp_path, "gw-r")
            plain = EdgeClient([gateway.address], new_user(f"plain-{suffix}"))
            built = EdgeClient([gateway.address], new_user(f"built-{suffix}"), app_version="v1")
            clients = (plain, built)
            try:
                await asyncio.gather(*(client.start() for client in clients))
                for table, served in (
                    (None, (older, older)),
                    ({**BOTH, "default": "v2"}, (newer, older)),
                    ({"v1": "gw.cmd.v2", "v2": "gw.cmd.v2", "default": "v1"}, (newer, newer)),
                    (BOTH, (older, older)),
                ):
                    if table is not None:
                        await reroute(places[1], gateway, table)
                    for client, back_end in zip(clients, served, strict=True):
                        command = await client.send("echo")
                        assert [event.re for event in await take(client, 1)] == [command]
                        assert command in {headers.id for _, headers, _, _ in back_end.commands}
                assert [client.counts.disconnects for client in clients] == [0, 0]
                assert [client.counts.connects for client in clients] == [1, 1]
            finally:
                for client in clients:
                    await client.close()
                await asyncio.to_thread(gateway.end)

    asyncio.run(asyncio.wait_for(story(), 300))
