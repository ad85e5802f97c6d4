"""A worker, or the timers, as a process: starts, prints ready, stops in order."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Log
from kafkaesque.service.clock import SystemClock
from kafkaesque.service.process import facts_file, serve_until_stopped, stop_event
from kafkaesque.service.status_page import StatusServer
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.status_page import TasksStatus
from kafkaesque.tasks.timers.election import Alone, Elected, Ownership
from kafkaesque.tasks.timers.service import TimerService
from kafkaesque.tasks.worker import Worker


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """`properties` are those of the Kafka client; no `queues` means all of the application."""

    bootstrap: str
    properties: Mapping[str, str]
    app: App
    config: TasksConfig
    data: Path
    queues: tuple[str, ...]
    name: str | None
    timers: bool
    http_listen: tuple[str, int]
    zookeeper: str
    end_with_stdin: bool


@dataclass(frozen=True, slots=True)
class TimersOptions:
    """`properties` are those of the Kafka client."""

    bootstrap: str
    properties: Mapping[str, str]
    config: TasksConfig
    data: Path
    name: str | None
    http_listen: tuple[str, int]
    zookeeper: str
    end_with_stdin: bool


class AppNotFound(Exception):
    """There is no application of that name."""


def load_app(text: str) -> App:
    """The application named MODULE:NAME. Raises AppNotFound."""
    module_name, colon, attribute = text.partition(":")
    if not colon or not attribute:
        raise AppNotFound(f"'{text}' is not MODULE:NAME, as in shop.tasks:app.")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise AppNotFound(
            f"there is no module '{error.name}' (looked for '{module_name}')."
        ) from None
    found = getattr(module, attribute, None)
    if not isinstance(found, App):
        raise AppNotFound(f"'{attribute}' of {module_name} is not an App.")
    return found


async def serve_worker(options: WorkerOptions) -> dict[str, Any]:
    """Work until a signal comes; returns a summary. Raises LogError and OSError."""
    stopping = stop_event(options.end_with_stdin)
    app = options.app
    name = options.name or default_name()
    log = _log(options, f"tasks-{app.name}-{name}")
    async with contextlib.AsyncExitStack() as stack:
        worker = Worker(app, log, options.config, name=name, queues=options.queues or None)
        service = None
        if options.timers:
            service = _service(log, options.zookeeper, name, options.data, options.config)
        shown = TasksStatus(
            lambda: worker.metrics.prometheus() + (service.prometheus() if service else ""),
            lambda: {**worker.status(), **(service.status() if service else {})},
            lambda: worker.not_ready() or (service.error if service else None),
        )
        page = StatusServer(shown)
        http = await page.start(*options.http_listen)
        stack.push_async_callback(page.stop)
        facts = {"worker": name, "app": app.name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(options.data / f"worker-{name}.json", facts))
        await _serve([worker, *([service] if service else [])], stopping, facts)
    return {**facts, **worker.status(), "abandoned_threads": worker.abandoned_threads}


async def serve_timers(options: TimersOptions) -> dict[str, Any]:
    """Keep the timers until a signal comes; returns a summary. Raises LogError and OSError."""
    stopping = stop_event(options.end_with_stdin)
    name = options.name or default_name()
    log = _log(options, f"tasks-timers-{name}")
    async with contextlib.AsyncExitStack() as stack:
        service = _service(log, options.zookeeper, name, options.data, options.config)
        page = StatusServer(TasksStatus(service.prometheus, service.status, lambda: service.error))
        http = await page.start(*options.http_listen)
        stack.push_async_callback(page.stop)
        facts = {"timers": name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(options.data / "timers.json", facts))
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


def _log(options: WorkerOptions | TimersOptions, client_id: str) -> KafkaLog:
    return KafkaLog(options.bootstrap, options.properties, client_id=client_id)


def default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"
