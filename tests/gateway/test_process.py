"""Real processes: gateways on a broker of ours with its coordination, or on what KAFKA and ZOOKEEPER name."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance_zookeeper.opened import opened
from tests.gateway.stage import EchoBackEnd, take

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.edge.client import EdgeClient
from kafkaesque.edge.client_state import Credentials
from kafkaesque.events.gateway import ROUTES_NODE
from kafkaesque.testing.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """bootstrap.servers and zookeeper.connect."""
    if "KAFKA" in os.environ:
        yield os.environ["KAFKA"], os.environ.get("ZOOKEEPER", "")
        return
    settings = {"coordination.listener": "127.0.0.1:0"}
    with BrokerProcess(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker.bootstrap_servers, broker.facts["coordination"]


class Process:
    """`kafkaesque gateway` from ready to its end."""

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
    """Accounts, messages, hand-over, kill -9, drain and routes, on one set of processes."""

    async def story() -> None:
        log = KafkaLog(places[0])
        async with EchoBackEnd(log), EchoBackEnd(log, "v2") as newer:
            first = await asyncio.to_thread(Process, places, tmp_path, "gw-1")
            second = await asyncio.to_thread(Process, places, tmp_path, "gw-2")
            both = [first.address, second.address]
            suffix = os.urandom(3).hex()
            a, b = f"alice-{suffix}", f"bob-{suffix}"
            alice = EdgeClient([first.address], new_user(a))
            bob = EdgeClient(["ws://" + second.address], new_user(b))
            try:
                await asyncio.gather(alice.start(), bob.start())
                await say(alice, bob, b, "hello")
                assert sorted(alice.welcome.targets) == sorted(both)  # type: ignore[union-attr]

                successor = await asyncio.to_thread(
                    Process, places, tmp_path, "gw-1", "--take-over"
                )
                assert await asyncio.to_thread(first.process.wait, 60) == 0
                assert successor.address == first.address
                await say(alice, bob, b, "after the hand-over")
                assert alice.counts.disconnects == 0

                successor.process.kill()
                alice.addresses.known.append(second.address)
                await say(alice, bob, b, "after kill -9")
                assert alice.counts.disconnects == 1

                if places[1]:
                    await asyncio.to_thread(set_routes, places[1])
                    carol = EdgeClient([second.address], new_user(f"c-{suffix}"),
                                       app_version="v2")  # fmt: skip
                    await carol.start()
                    assert await carol.ask("who") is not None
                    assert {op for _, _, op, _ in newer.commands} == {"account.create", "who"}
                    await carol.close()

                third = await asyncio.to_thread(Process, places, tmp_path, "gw-3")
                second.process.terminate()
                alice.addresses.known[:] = [third.address]
                bob.addresses.known[:] = ["ws://" + third.address]
                await say(alice, bob, b, "after the drain")
                assert await asyncio.to_thread(second.process.wait, 60) == 0
                for process in (first, second, successor):
                    process.end()
                await alice.close()
                await bob.close()
                assert third.end() == 0
                assert not (tmp_path / "gw-3" / "gateway.json").exists()
            finally:
                await alice.close()
                await bob.close()

    asyncio.run(asyncio.wait_for(story(), 300))


async def say(sender: EdgeClient, receiver: EdgeClient, name: str, text: str) -> None:
    await sender.send("message.send", {"to": name, "text": text})
    [event] = await take(receiver, 1)
    assert event.body["text"] == text
    await take(sender, 1)


def set_routes(zookeeper: str) -> None:
    table = {"v1": "gw.cmd.v1", "v2": "gw.cmd.v2", "default": "v1"}
    with opened(zookeeper, timeout_s=30) as client:
        client.set(ROUTES_NODE, json.dumps(table).encode())
