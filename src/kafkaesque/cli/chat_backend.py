"""The process behind `kafkaesque chat backend`: start, say ready, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import platform
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.chat.backend import Backend, TopicsDiffer
from kafkaesque.chat.config import BackendConfig
from kafkaesque.chat.facts import EntryUnreadable
from kafkaesque.chat.status_page import StatusPage
from kafkaesque.chat.translator import Translator
from kafkaesque.chat.versions import HOME_VERSION
from kafkaesque.cli.chat_process import facts_file, host_port, say_ready, stop_signals
from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CannotConnect, Failure
from kafkaesque.cli.render import Screen
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import LogError

READY_POLL_SECONDS = 0.02


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
        summary = asyncio.run(_backend(connection, wanted))
    except (LogError, TopicsDiffer) as error:
        raise Failure(str(error)) from None
    except EntryUnreadable as error:
        raise Failure(f"the journal was written by a later build: {error}") from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None
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
        await _serve(backend, stopping, facts)
    counts = asdict(backend.counts)
    return {**facts, **counts, "passes": backend.state.passes}


async def _serve(
    backend: Backend | Translator, stopping: asyncio.Event, facts: dict[str, str]
) -> None:
    running = asyncio.create_task(backend.run())
    stop = asyncio.create_task(stopping.wait())
    try:
        while not backend.state.ready and not running.done() and not stopping.is_set():
            await asyncio.wait((running, stop), timeout=READY_POLL_SECONDS)
        if backend.state.ready:
            say_ready(facts)
        await asyncio.wait((running, stop), return_when=asyncio.FIRST_COMPLETED)
        backend.stop()
        await running
    finally:
        for task in (running, stop):
            task.cancel()
        await asyncio.gather(running, stop, return_exceptions=True)
