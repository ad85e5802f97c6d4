"""A chat back end, or the server of the chat page, as a process: starts, prints ready, stops in order."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kafkaesque.chat.backend import Backend
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.rules.versions import HOME_VERSION
from kafkaesque.chat.status_page import BackendStatus
from kafkaesque.chat.translator import Translator
from kafkaesque.chat.web_server import WebServer
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.service.process import facts_file, serve_until_stopped, stop_event
from kafkaesque.service.status_page import StatusServer


@dataclass(frozen=True, slots=True)
class BackendOptions:
    """`properties` are those of the Kafka client."""

    bootstrap: str
    properties: Mapping[str, str]
    config: BackendConfig
    app_version: str
    name: str | None
    data: Path | None
    http_listen: tuple[str, int]
    end_with_stdin: bool


async def serve_backend(options: BackendOptions) -> dict[str, Any]:
    """Serve until a signal comes; returns a summary.

    Raises PartitionCountMismatch, EntryUnreadable, LogError and OSError.
    """
    stopping = stop_event(options.end_with_stdin)
    name = options.name or f"{platform.node()}-{os.getpid()}"
    properties = {**options.config.log_properties(), **options.properties}
    log = KafkaLog(options.bootstrap, properties, client_id=f"chat-backend-{name}")
    backend: Backend | Translator
    if options.app_version == HOME_VERSION:
        backend = Backend(log, name, options.config)
    else:
        backend = Translator(log, name, options.app_version, options.config)
    page = StatusServer(BackendStatus(backend))
    async with contextlib.AsyncExitStack() as stack:
        http = await page.start(*options.http_listen)
        stack.push_async_callback(page.stop)
        facts = {
            "backend": name,
            "version": options.app_version,
            "group": backend.group,
            "http": http,
            "pid": str(os.getpid()),
        }
        data = options.data or Path("kafkaesque-data") / f"chat-{name}"
        stack.enter_context(facts_file(data / "backend.json", facts))
        await serve_until_stopped(
            [backend.run()], [backend.stop], lambda: backend.state.ready, stopping, facts
        )
    counts = asdict(backend.counts)
    return {**facts, **counts, "passes": backend.state.passes}


async def serve_web(
    gateways: Sequence[str],
    listen: tuple[str, int],
    data: Path,
    end_with_stdin: bool,
    on_ready: Callable[[Mapping[str, str]], None],
) -> None:
    """Serve the chat page until a signal comes. `gateways` are ws:// or wss:// URLs. Raises OSError."""
    stopping = stop_event(end_with_stdin)
    server = WebServer(gateways)
    http = await server.start(*listen)
    facts = {"http": http, "gateways": ",".join(gateways), "pid": str(os.getpid())}
    try:
        with facts_file(data / "web.json", facts):
            on_ready(facts)
            await stopping.wait()
    finally:
        await server.stop()
