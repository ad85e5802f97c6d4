"""One gateway as a process: starts in order, prints ready, then drains or hands over to a successor."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.gateway.config import GatewayConfig
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.handover import HandoverServer, take_over
from kafkaesque.model.address import parse_address
from kafkaesque.service.child_process import print_ready
from kafkaesque.service.clock import SystemClock
from kafkaesque.service.process import facts_file, read_facts, stop_event
from kafkaesque.service.status_page import StatusServer

FACTS_NAME = "gateway.json"
FETCH_WAIT_MS = "50"
"""Short, because a newly assigned partition waits for the current fetch."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """`properties` are those of the Kafka client. `take_over` continues the process that runs in
    `data`, with its connections."""

    bootstrap: str
    properties: Mapping[str, str]
    config: GatewayConfig
    listen: tuple[str, int]
    name: str | None
    data: Path
    http_listen: tuple[str, int]
    take_over: bool
    end_with_stdin: bool


class GatewayFailed(Exception):
    """A part of the gateway failed while it served."""


async def serve_gateway(options: GatewayOptions) -> dict[str, Any]:
    """Serve until a signal or a successor comes; returns a summary.

    Raises GatewayFailed, HandoverFailed, InvalidConfig, LogError and OSError.
    """
    stopping = stop_event(options.end_with_stdin)
    options.data.mkdir(parents=True, exist_ok=True)
    before = read_facts(options.data / FACTS_NAME) if options.take_over else {}
    name = options.name or before.get("gateway") or _default_name(options.listen)
    properties = {"fetch.wait.max.ms": FETCH_WAIT_MS, **options.properties}
    log = KafkaLog(options.bootstrap, properties, client_id=f"gateway-{name}")
    gateway = Gateway(name, log, options.config, options.data, SystemClock())
    # Shared: a successor that takes over listens before this process has gone.
    page = StatusServer(gateway, reuse_port=True)
    taken = False
    try:
        await gateway.prepare()
        http = await page.start(
            *(parse_address(before["http"]) if "http" in before else options.http_listen)
        )
        if options.take_over:
            address, _count = await take_over(gateway, options.data)
        else:
            address = await gateway.listen(*options.listen)
        facts = {"gateway": name, "tcp": address, "http": http, "pid": str(os.getpid())}
        taken = await _serve(gateway, options.data, facts, stopping)
        return {**facts, "connections": gateway.counters.accepted, "handed_over": taken}
    finally:
        await gateway.stop(handed_over=taken)
        await page.stop()


async def _serve(
    gateway: Gateway, data: Path, facts: dict[str, str], stopping: asyncio.Event
) -> bool:
    """Serve until a signal comes, then drain; or until a successor takes over. True for the latter."""
    successor = HandoverServer(gateway, data)
    successor.start()
    ends = (stopping, successor.handed_over, gateway.broken)
    waits = [asyncio.create_task(event.wait()) for event in ends]
    try:
        with facts_file(data / FACTS_NAME, facts):
            print_ready(facts)
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            if gateway.broken.is_set():
                raise GatewayFailed("the gateway failed; its log has the reason")
            if not successor.handed_over.is_set():
                await gateway.drain()
            return successor.handed_over.is_set()
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await successor.stop()


def _default_name(listen: tuple[str, int]) -> str:
    host, port = listen
    return f"gw-{host}-{port or f'pid{os.getpid()}'}"
