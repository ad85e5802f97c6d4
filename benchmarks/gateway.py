"""Figures of the gateway: idle connections and the storm that makes them.

    .venv/bin/python benchmarks/gateway.py [--connections 10000] [--websocket] [--bootstrap-server ...] [--json]

A broker (unless one is named) and a gateway as processes of their own; the clients are bare sockets in this one. Reported:
memory per connection, the time from the first connect until the last client is live, and the same once
more for a reconnect storm (all connections cut at once).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import jwt
import psutil

from kafkaesque.edge.protocol.codec import Encoding, encode_pair, encode_payload
from kafkaesque.edge.protocol.framing import encode_frame
from kafkaesque.edge.protocol.messages import OPCODES, Auth, Hello, Message, Resume
from kafkaesque.testing.broker_process import BrokerProcess

SECRET = "a-secret-for-this-benchmark-only-0123456789"
CONNECTING = 500
"""Connects under way at once: more only fill the backlog."""


def token_of(user: str) -> str:
    return jwt.encode({"sub": user, "exp": int(time.time()) + 3600}, SECRET, "HS256")


class Client:
    """Says HELLO, AUTH and RESUME, then nothing."""

    def __init__(self, number: int, websocket: bool) -> None:
        self._websocket = websocket
        said = [Hello(), Auth(token=token_of(f"user-{number}")), Resume()]
        self._opening = b"".join(self._frame(message) for message in said)
        self.writer: asyncio.StreamWriter | None = None

    def _frame(self, message: Message) -> bytes:
        if not self._websocket:
            return encode_frame(OPCODES[type(message)], encode_payload(message, Encoding.JSON))
        data = encode_pair(message, Encoding.JSON)
        size = (
            bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
        )
        # A mask of zeros leaves the bytes as they are.
        return b"\x81" + size + b"\0\0\0\0" + data

    async def connect(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        reader, self.writer = await asyncio.open_connection(host, int(port), limit=4096)
        if self._websocket:
            key = base64.b64encode(os.urandom(16)).decode()
            self.writer.write(
                f"GET / HTTP/1.1\r\nHost: {address}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
                f"Sec-WebSocket-Protocol: kafkaesque.v1.json\r\n\r\n".encode()
            )
        self.writer.write(self._opening)
        data = b""
        while b'"replayed"' not in data:
            piece = await reader.read(4096)
            if not piece:
                raise click.ClickException(f"the gateway closed a connection: {data[-200:]!r}")
            data += piece

    def cut(self) -> None:
        if self.writer is not None:
            self.writer.transport.abort()


async def storm(clients: list[Client], address: str) -> float:
    started_s = time.monotonic()
    turn = asyncio.Semaphore(CONNECTING)

    async def one(client: Client) -> None:
        async with turn:
            await client.connect(address)

    await asyncio.gather(*(one(client) for client in clients))
    return time.monotonic() - started_s


async def measure(
    process: subprocess.Popen[str], address: str, count: int, websocket: bool
) -> dict[str, float]:
    gateway = psutil.Process(process.pid)
    warm = [Client(-1 - number, websocket) for number in range(200)]
    await storm(warm, address)
    before = gateway.memory_info().rss
    clients = [Client(number, websocket) for number in range(count)]
    first_s = await storm(clients, address)
    held = gateway.memory_info().rss - before
    cpu_s = gateway.cpu_times().user
    await asyncio.sleep(5)
    idle_cpu = (gateway.cpu_times().user - cpu_s) / 5
    for client in clients:
        client.cut()
    await asyncio.sleep(1)
    again_s = await storm(clients, address)
    for client in [*warm, *clients]:
        client.cut()
    return {
        "connections": count,
        "websocket": websocket,
        "kib_per_connection": round(held / count / 1024, 2),
        "storm_s": round(first_s, 2),
        "storm_again_s": round(again_s, 2),
        "idle_cpu_share": round(idle_cpu, 3),
        "rss_mib": round(gateway.memory_info().rss / 2**20, 1),
    }


def start_gateway(bootstrap_server: str, data: Path) -> subprocess.Popen[str]:
    (data / "jwt.key").write_text(SECRET)
    return subprocess.Popen(
        [sys.executable, "-m", "kafkaesque.cli.main", "gateway", "-b", bootstrap_server,
         "--data", str(data / "gw"), "--listen", "127.0.0.1:0", "--set", "heartbeat.ms=600000",
         "--set", "auth.jwt.algorithms=HS256", "--set", f"auth.jwt.key.file={data / 'jwt.key'}",
         "--end-with-stdin"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@click.command()
@click.option("--connections", default=10_000, show_default=True)
@click.option("--websocket", is_flag=True)
@click.option("--bootstrap-server", help="A broker that runs already.  [default: start one]")
@click.option("--json", "as_json", is_flag=True)
def main(connections: int, websocket: bool, bootstrap_server: str | None, as_json: bool) -> None:
    """Measure idle connections on one gateway."""
    wanted = 2 * connections + 1000
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    with contextlib.ExitStack() as stack:
        data = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if bootstrap_server is None:
            broker = stack.enter_context(BrokerProcess(data / "broker", {}))
            bootstrap_server = broker.bootstrap_servers
        process = start_gateway(bootstrap_server, data)
        stack.callback(process.wait)
        stack.callback(process.kill)
        line = process.stdout.readline() if process.stdout is not None else ""
        address = dict(word.split("=", 1) for word in line.split()[1:])["tcp"]
        found = asyncio.run(measure(process, address, connections, websocket))
    if as_json:
        click.echo(json.dumps(found))
    else:
        for name, value in found.items():
            click.echo(f"{name:22} {value}")


if __name__ == "__main__":
    main()
