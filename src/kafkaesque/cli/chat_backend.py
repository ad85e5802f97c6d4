"""The process behind `kafkaesque chat backend`: start, say ready, stop in order."""

from __future__ import annotations

import contextlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.chat.backend import Backend, PartitionCountMismatch
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.rules.facts import EntryUnreadable
from kafkaesque.chat.rules.versions import HOME_VERSION
from kafkaesque.chat.status_page import StatusPage
from kafkaesque.chat.translator import Translator
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import Failure
from kafkaesque.cli.render import Screen
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    run_service,
    serve_until_stopped,
    stop_signals,
)
from kafkaesque.client.kafka import KafkaLog


@dataclass(frozen=True, slots=True)
class BackendWanted:
    """What `chat backend` was asked for."""

    config: BackendConfig
    app_version: str
    name: str | None
    data: Path | None
    http_listen: str
    end_with_stdin: bool


def run_backend(connection: Connection, wanted: BackendWanted, screen: Screen) -> None:
    try:
        summary = run_service(_backend(connection, wanted))
    except PartitionCountMismatch as error:
        raise Failure(str(error)) from None
    except EntryUnreadable as error:
        raise Failure(f"the journal was written by a later build: {error}") from None
    if screen.as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(f"stopped after {summary['messages']} messages, {summary['commands']} commands, "
                   f"{summary['repeats']} repeats dropped")  # fmt: skip


async def _backend(connection: Connection, wanted: BackendWanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    name = wanted.name or f"{platform.node()}-{os.getpid()}"
    properties = {**wanted.config.log_properties(), **connection.properties}
    log = KafkaLog(connection.bootstrap, properties, client_id=f"chat-backend-{name}")
    backend: Backend | Translator
    if wanted.app_version == HOME_VERSION:
        backend = Backend(log, name, wanted.config)
    else:
        backend = Translator(log, name, wanted.app_version, wanted.config)
    page = StatusPage(backend)
    async with contextlib.AsyncExitStack() as stack:
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {
            "backend": name,
            "version": wanted.app_version,
            "group": backend.group,
            "http": http,
            "pid": str(os.getpid()),
        }
        data = wanted.data or Path("kafkaesque-data") / f"chat-{name}"
        stack.enter_context(facts_file(data / "backend.json", facts))
        await serve_until_stopped(
            [backend.run()], [backend.stop], lambda: backend.state.ready, stopping, facts
        )
    counts = asdict(backend.counts)
    return {**facts, **counts, "passes": backend.state.passes}
