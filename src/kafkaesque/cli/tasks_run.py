"""The processes of `kafkaesque tasks`: start in order, report ready, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import usage
from kafkaesque.cli.render import Screen
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    run_service,
    serve_until_stopped,
    stop_signals,
)
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Log
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.status_page import StatusPage
from kafkaesque.tasks.system import SystemClock
from kafkaesque.tasks.timers.election import Alone, Elected, Ownership
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.tasks.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerWanted:
    """What `tasks worker` was asked for."""

    app: App
    config: TasksConfig
    data: Path
    queues: tuple[str, ...]
    name: str | None
    timers: bool
    http_listen: str
    zookeeper: str
    end_with_stdin: bool


@dataclass(frozen=True, slots=True)
class TimersWanted:
    """What `tasks timers` was asked for."""

    config: TasksConfig
    data: Path
    name: str | None
    http_listen: str
    zookeeper: str
    end_with_stdin: bool


def load_app(text: str) -> App:
    """The application named MODULE:NAME."""
    module_name, colon, attribute = text.partition(":")
    if not colon or not attribute:
        raise usage(f"'{text}' is not MODULE:NAME, as in shop.tasks:app.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise usage(f"there is no module '{error.name}' (looked for '{module_name}').") from None
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise usage(f"'{attribute}' of {module_name} is no App.")
    return found


def run_worker(connection: Connection, wanted: WorkerWanted, screen: Screen) -> None:
    unknown = set(wanted.queues) - set(wanted.app.queues)
    if unknown:
        queues = ", ".join(wanted.app.queues)
        raise usage(f"{wanted.app.name} has no queue '{min(unknown)}'; it has {queues}.")
    summary = run_service(_worker(connection, wanted))
    abandoned = summary.pop("abandoned_threads")
    if screen.as_json:
        click.echo(json.dumps(summary))
    else:
        done = sum(one["done"] for one in summary["tasks"].values())
        click.echo(f"stopped after {done} calls")
    if abandoned:
        # A function that hangs in a call of C would keep the interpreter from ending.
        sys.stdout.flush()
        os._exit(0)


def run_timers(connection: Connection, wanted: TimersWanted, screen: Screen) -> None:
    summary = run_service(_timers(connection, wanted))
    if screen.as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(f"stopped after {summary['fired']} timers")


async def _worker(connection: Connection, wanted: WorkerWanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    app = wanted.app
    name = wanted.name or default_name()
    log = _log(connection, f"tasks-{app.name}-{name}")
    async with contextlib.AsyncExitStack() as stack:
        worker = Worker(app, log, wanted.config, name=name, queues=wanted.queues or None)
        service = None
        if wanted.timers:
            service = _service(log, wanted.zookeeper, name, wanted.data, wanted.config)
        page = StatusPage(
            lambda: worker.metrics.prometheus() + (service.prometheus() if service else ""),
            lambda: {**worker.status(), **(service.status() if service else {})},
            lambda: worker.not_ready() or (service.error if service else None),
        )
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {"worker": name, "app": app.name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(wanted.data / f"worker-{name}.json", facts))
        await _serve([worker, *([service] if service else [])], stopping, facts)
    return {**facts, **worker.status(), "abandoned_threads": worker.abandoned_threads}


async def _timers(connection: Connection, wanted: TimersWanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    name = wanted.name or default_name()
    log = _log(connection, f"tasks-timers-{name}")
    async with contextlib.AsyncExitStack() as stack:
        service = _service(log, wanted.zookeeper, name, wanted.data, wanted.config)
        page = StatusPage(service.prometheus, service.status, lambda: service.error)
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {"timers": name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(wanted.data / "timers.json", facts))
        await _serve([service], stopping, facts)
    return {**facts, **service.status()}


async def _serve(
    parts: Sequence[Worker | TimerService], stopping: asyncio.Event, facts: dict[str, str]
) -> None:
    await serve_until_stopped(
        [part.run() for part in parts],
        [part.stop for part in parts],
        lambda: all(part.ready.is_set() for part in parts),
        stopping,
        facts,
    )


def _service(log: Log, zookeeper: str, name: str, data: Path, config: TasksConfig) -> TimerService:
    ownership: Ownership = Elected(zookeeper, name) if zookeeper else Alone()
    return TimerService(log, ownership, data / "timers", SystemClock(), config)


def _log(connection: Connection, client_id: str) -> KafkaLog:
    return KafkaLog(connection.bootstrap, connection.properties, client_id=client_id)


def default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
