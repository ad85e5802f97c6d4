"""Message latency of chat, client to client, and how much of it is the log's.

    .venv/bin/python benchmarks/chat.py [--clients 200] [--rate 1000] [--seconds 30] [--json]

A broker (unless one is named), a gateway, two back ends and the clients, each a process of its own. Then the
same hops through the log alone, at the same rate and with the same client library: a command, a
transaction at the sender's home, another at the recipient's, and the inbox that a gateway reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import CommitPoint, Record, Subscription, WriterOptions
from kafkaesque.events.topics import TopicSpec
from kafkaesque.lab.faults.checks.figures import percentile
from kafkaesque.lab.faults.runs.chat import ChatLoadProcess, backend_process, gateway_process
from kafkaesque.lab.faults.runs.chat_load import LoadSettings
from kafkaesque.model.ids import Offset, TopicPartition
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.testing.cluster_layout import ReservedPorts

HOPS = ("bare-command", "bare-home", "bare-inbox")
PARTITIONS = 4
WARM_UP_S = 5.0


@contextlib.contextmanager
def broker_at(address: str | None, directory: Path) -> Iterator[str]:
    if address is not None:
        yield address
        return
    with BrokerProcess(directory, {"num.partitions": 8}) as broker:
        yield broker.bootstrap_servers


def chat(bootstrap: str, directory: Path, clients: int, rate: float, seconds: float) -> list[float]:
    """Milliseconds from `send` to the recipient's event, one for each message."""
    secret = secrets.token_hex(32)
    (directory / "jwt.key").write_text(secret)
    ports = ReservedPorts(1)
    listen = f"127.0.0.1:{ports.numbers[0]}"
    key = f"auth.jwt.key.file={directory / 'jwt.key'}"
    services = [
        gateway_process(bootstrap, "g0", directory, listen, "auth.jwt.algorithms=HS256", key),
        *(backend_process(bootstrap, name, directory) for name in ("b0", "b1")),
    ]
    load = ChatLoadProcess(LoadSettings((listen,), secret, clients, rate), directory)
    try:
        for service in services:
            service.launch()
        for service in services:
            service.wait_ready()
        load.start()
        began_ns = time.monotonic_ns() + int(WARM_UP_S * 1e9)
        time.sleep(WARM_UP_S + seconds)
        tally = load.finish(300)
    finally:
        for service in (load, *services):
            service.kill()
        ports.close()
    wrong = {name: tally[name] for name in ("lost", "twice", "reordered", "refused") if tally[name]}
    if wrong:
        raise click.ClickException(f"the run is not sound: {wrong} {tally['failures'][:3]}")
    return [taken_ms for sent_ns, taken_ms in tally["deliveries"] if sent_ns >= began_ns]


class Bare:
    """The log's part of a message's way, and nothing else."""

    def __init__(self, bootstrap: str, rate: float, seconds: float) -> None:
        self._log = KafkaLog(bootstrap, client_id="bare")
        self._rate, self._seconds = rate, seconds
        self._taken_ms: list[float] = []

    async def run(self) -> list[float]:
        await self._log.admin.ensure_topics(
            [TopicSpec(name, PARTITIONS, "user", "a hop") for name in HOPS]
        )
        moving = [
            asyncio.create_task(self._move(source, target))
            for source, target in itertools.pairwise(HOPS)
        ]
        receiving = asyncio.create_task(self._receive())
        await self._send()
        await asyncio.sleep(2)
        for task in (*moving, receiving):
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*moving, receiving, return_exceptions=True)
        return self._taken_ms

    async def _send(self) -> None:
        writer = await self._log.open_writer(WriterOptions())
        sending: set[asyncio.Task[Any]] = set()
        next_s = time.monotonic()
        end_s = next_s + WARM_UP_S + self._seconds
        number = 0
        while (now_s := time.monotonic()) < end_s:
            next_s += 1 / self._rate
            await asyncio.sleep(max(0.0, next_s - now_s))
            number += 1
            is_counted = now_s > end_s - self._seconds
            value = json.dumps({"sent_ns": time.monotonic_ns(), "counts": is_counted})
            record = Record(HOPS[0], f"user-{number % 500}".encode(), value.encode())
            task = asyncio.create_task(writer.send([record]))
            sending.add(task)
            task.add_done_callback(sending.discard)
        await asyncio.gather(*sending)
        await writer.close()

    async def _move(self, source: str, target: str) -> None:
        """As a back end does: what there is, in one transaction with its offsets."""
        writer = await self._log.open_writer(WriterOptions(f"bare-{source}", linger_ms=0))
        reader = await self._log.open_reader(Subscription([source], f"bare-{source}"))
        while True:
            records = await reader.read()
            if not records:
                continue
            points = {
                TopicPartition(one.topic, one.partition): CommitPoint(Offset(one.offset + 1))
                for one in records
            }
            async with writer.transaction():
                await writer.send([Record(target, one.key, one.value) for one in records])
                await writer.send_offsets(reader, points)

    async def _receive(self) -> None:
        reader = await self._log.open_reader(Subscription([HOPS[-1]], "bare-gateway"))
        while True:
            for record in await reader.read():
                said = json.loads(record.value or b"{}")
                if said["counts"]:
                    self._taken_ms.append((time.monotonic_ns() - said["sent_ns"]) / 1e6)


def figures(taken_ms: list[float]) -> dict[str, float]:
    return {
        "messages": len(taken_ms),
        "p50_ms": round(percentile(taken_ms, 0.5), 1),
        "p99_ms": round(percentile(taken_ms, 0.99), 1),
    }


@click.command(help=__doc__)
@click.option("--clients", default=200, show_default=True)
@click.option("--rate", default=1000.0, show_default=True, help="Messages a second in all.")
@click.option("--seconds", default=30.0, show_default=True)
@click.option("--bootstrap-server", help="A Kafka that runs already.  [default: start one]")
@click.option("--json", "as_json", is_flag=True)
def main(
    clients: int, rate: float, seconds: float, bootstrap_server: str | None, as_json: bool
) -> None:
    with tempfile.TemporaryDirectory() as name, broker_at(bootstrap_server, Path(name)) as address:
        whole = figures(chat(address, Path(name), clients, rate, seconds))
        bare = figures(asyncio.run(Bare(address, rate, seconds).run()))
    share = {
        f"log_share_{which}": round(bare[f"{which}_ms"] / whole[f"{which}_ms"], 2)
        for which in ("p50", "p99")
    }
    found = {"clients": clients, "rate": rate, "chat": whole, "log alone": bare, **share}
    if as_json:
        click.echo(json.dumps(found))
    else:
        for key, value in found.items():
            click.echo(f"{key}: {value}")


if __name__ == "__main__":
    main()
