"""The process of `kafkaesque gateway`: starts, reports ready, drains or is taken over."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import Failure, usage
from kafkaesque.cli.render import Screen
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    read_facts,
    run_service,
    say_ready,
    stop_signals,
)
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.handover import HandoverFailed, HandoverServer, take_over
from kafkaesque.gateway.machine_clock import MachineClock
from kafkaesque.gateway.status_page import StatusPage
from kafkaesque.model.errors import InvalidConfig

FACTS_NAME = "gateway.json"
FETCH_WAIT_MS = "50"
"""Short, because a newly assigned partition waits for the current fetch."""


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
        summary = run_service(_gateway(connection, wanted))
    except HandoverFailed as error:
        raise Failure(str(error)) from None
    except InvalidConfig as error:
        raise usage(str(error)) from None
    if screen.as_json:
        click.echo(json.dumps(summary))


async def _gateway(connection: Connection, wanted: Wanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    wanted.data.mkdir(parents=True, exist_ok=True)
    before = read_facts(wanted.data / FACTS_NAME) if wanted.take_over else {}
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
        return {**facts, "connections": gateway.counters.accepted, "handed_over": taken}
    finally:
        await gateway.stop(handed_over=taken)
        await page.stop()


async def _serve(
    gateway: Gateway, data: Path, facts: dict[str, str], stopping: asyncio.Event
) -> bool:
    """Until a signal (then drain) or a successor: True if there was one."""
    successor = HandoverServer(gateway, data)
    successor.start()
    ends = (stopping, successor.handed_over, gateway.broken)
    waits = [asyncio.create_task(event.wait()) for event in ends]
    try:
        with facts_file(data / FACTS_NAME, facts):
            say_ready(facts)
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


def _default_name(listen: str) -> str:
    host, port = host_port(listen)
    return f"gw-{host}-{port or f'pid{os.getpid()}'}"
