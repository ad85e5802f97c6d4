"""A gateway after HAProxy and nginx with the example configurations: it sees the clients' addresses."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.gateway.stage import Stage, run
from tests.waiting import until
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from kafkaesque.edge.client_transport import TransportClosed, open_transport
from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.service.status_page import StatusServer
from kafkaesque.testing.reserved_ports import ReservedPorts

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "gateway"


@pytest.fixture
def port() -> Iterator[int]:
    with ReservedPorts(1) as ports:
        yield ports.numbers[0]


async def listening(port: int) -> None:
    async def accepts() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    await until(accepts, "the proxy does not listen")


async def end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
    await process.wait()


def addresses(*gateways: Gateway) -> list[str]:
    return [
        connection.session.address
        for gateway in gateways
        for connection in gateway.connections
        if connection.session.user is not None
    ]


@pytest.mark.skipif(shutil.which("haproxy") is None, reason="haproxy is missing: make clients")
def test_haproxy_keeps_the_address_and_avoids_a_gateway_that_drains(port: int) -> None:
    async def story(on: Stage) -> None:
        gateways = [await on.gateway(f"gw-{n}", proxy_protocol="true") for n in (1, 2)]
        pages = [StatusServer(gateway) for gateway in gateways]
        http = [await page.start("127.0.0.1", 0) for page in pages]
        places = {"LISTEN": f"127.0.0.1:{port}"}
        for number, gateway in enumerate(gateways, 1):
            host, _, http_port = http[number - 1].rpartition(":")
            places |= {f"GATEWAY{number}": gateway.address, f"HTTP{number}_HOST": host,
                       f"HTTP{number}_PORT": http_port}  # fmt: skip
        process = await asyncio.create_subprocess_exec(
            "haproxy", "-db", "-f", str(EXAMPLES / "haproxy.cfg"),
            env={**os.environ, **places}, stderr=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        try:
            await listening(port)
            alice = await on.connected("alice", f"127.0.0.1:{port}")
            assert (await alice.ask("who"))["user"] == "alice"
            [seen] = addresses(*gateways)
            writer = alice._transport._writer  # type: ignore[union-attr]
            mine = writer.get_extra_info("sockname")
            assert seen == f"{mine[0]}:{mine[1]}"
            web = await on.connected("bob", f"ws://127.0.0.1:{port}/")
            assert (await web.ask("who"))["user"] == "bob"
            gateways[0].draining = True

            async def others_only() -> bool:
                clients = [await on.connected(f"u{n}", f"127.0.0.1:{port}") for n in range(4)]
                users = {c.session.user.name for c in gateways[0].connections
                         if c.session.user is not None}  # fmt: skip
                for client in clients:
                    await client.close()
                return not any(name.startswith("u") for name in users)

            await until(others_only, "new clients still reach the first gateway")
        finally:
            await end(process)
            for page in pages:
                await page.stop()

    run(story)


@pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is missing: make clients")
def test_nginx_passes_websockets_with_the_address_of_the_client(tmp_path: Path, port: int) -> None:
    async def story(on: Stage) -> None:
        gateways = [await on.gateway(f"gw-{n}") for n in (1, 2)]
        text = (EXAMPLES / "nginx.conf").read_text()
        for name, value in {"DIRECTORY": str(tmp_path), "LISTEN": f"127.0.0.1:{port}",
                            "GATEWAY1": gateways[0].address,
                            "GATEWAY2": gateways[1].address}.items():  # fmt: skip
            text = text.replace(f"@{name}@", value)
        config = tmp_path / "nginx.conf"
        config.write_text(text)
        process = await asyncio.create_subprocess_exec(
            "nginx", "-p", str(tmp_path), "-c", str(config), stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await listening(port)
            alice = await on.connected("alice", f"ws://127.0.0.1:{port}/")
            assert (await alice.ask("who"))["user"] == "alice"
            token = on.token("bob")
            subprotocol = Subprotocol("kafkaesque.v1.json")
            async with connect(f"ws://127.0.0.1:{port}/", subprotocols=[subprotocol],
                               local_addr=("127.0.0.2", 0), compression=None,
                               origin=f"http://127.0.0.1:{port}") as page:  # type: ignore[arg-type]  # fmt: skip
                await page.send("[1,{}]")
                await page.send(f'[2,{{"token":"{token}"}}]')
                assert "bob" in str(await page.recv())
                await until(lambda: "127.0.0.2" in addresses(*gateways))
        finally:
            await end(process)

    run(story)


def test_without_the_header_a_trusted_proxy_is_refused() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(proxy_protocol="true")
        link = await open_transport(gateway.address, Encoding.JSON)
        from kafkaesque.edge.protocol.messages import Hello

        await link.send([Hello()])
        with pytest.raises(TransportClosed):
            await link.receive()
        await link.close()

    run(story)
