"""The process behind `kafkaesque gateway`: start in order, say ready, go or be taken over."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CannotConnect, Failure, usage
from kafkaesque.cli.render import Screen
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import LogError
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.handover import HandoverFailed, HandoverServer, take_over
from kafkaesque.gateway.machine_clock import MachineClock
from kafkaesque.gateway.status_page import StatusPage
from kafkaesque.model.errors import InvalidConfig

FACTS_NAME = "gateway.json"
FETCH_WAIT_MS = "50"
"""A partition that somebody begins to want waits for the fetch that is under way."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `gateway` was asked for."""

    config: GatewayConfig
    listen: str
    name: str | None
    data: Path
    http_listen: str
    take_over: bool
    end_with_stdin: bool


def run_gateway(connection: Connection, wanted: Wanted, screen: Screen) -> None:
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            summary = runner.run(_gateway(connection, wanted))
    except (LogError, HandoverFailed) as error:
        raise Failure(str(error)) from None
    except InvalidConfig as error:
        raise usage(str(error)) from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None
    if screen.as_json:
        click.echo(json.dumps(summary))


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


async def _gateway(connection: Connection, wanted: Wanted) -> dict[str, Any]:
    stopping = _stop_signals(wanted.end_with_stdin)
    wanted.data.mkdir(parents=True, exist_ok=True)
    before = _read_facts(wanted.data) if wanted.take_over else {}
    name = wanted.name or before.get("gateway") or _default_name(wanted.listen)
    properties = {"fetch.wait.max.ms": FETCH_WAIT_MS, **connection.properties}
    log = KafkaLog(connection.bootstrap, properties, client_id=f"gateway-{name}")
    gateway = Gateway(name, log, wanted.config, wanted.data, MachineClock())
    page = StatusPage(gateway)
    taken = False
    try:
        await gateway.prepare()
        http = await page.start(*host_port(before.get("http") or wanted.http_listen))
        if wanted.take_over:
            address, _count = await take_over(gateway, wanted.data)
        else:
            address = await gateway.listen(*host_port(wanted.listen))
        facts = {"gateway": name, "tcp": address, "http": http, "pid": str(os.getpid())}
        taken = await _serve(gateway, wanted.data, facts, stopping)
        return {**facts, "connections": gateway.services.counters.accepted, "handed_over": taken}
    finally:
        await gateway.stop(handed_over=taken)
        await page.stop()


async def _serve(
    gateway: Gateway, data: Path, facts: dict[str, str], stopping: asyncio.Event
) -> bool:
    """Until a signal (then drain) or a successor: True if there was one."""
    successor = HandoverServer(gateway, data)
    successor.start()
    path = data / FACTS_NAME
    path.write_text(json.dumps(facts) + "\n")
    ends = (stopping, successor.handed_over, gateway.broken)
    waits = [asyncio.create_task(event.wait()) for event in ends]
    try:
        click.echo("ready " + " ".join(f"{name}={value}" for name, value in facts.items()))
        sys.stdout.flush()
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if gateway.broken.is_set():
            raise Failure("the gateway failed; its log says why")
        if not successor.handed_over.is_set():
            await gateway.drain()
        return successor.handed_over.is_set()
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await successor.stop()
        if _read_facts(data).get("pid") == facts["pid"]:
            path.unlink(missing_ok=True)


def _read_facts(data: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads((data / FACTS_NAME).read_text())
        if isinstance(found, dict):
            return found
    return {}


def _default_name(listen: str) -> str:
    host, port = host_port(listen)
    return f"gw-{host}-{port or f'pid{os.getpid()}'}"


def host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise usage(f"'{text}' is not HOST:PORT.")
    return host.strip("[]"), int(port)


def _stop_signals(end_with_stdin: bool) -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stopping.set)
    return stopping
