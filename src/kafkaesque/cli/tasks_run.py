"""The processes behind `kafkaesque tasks`: start in order, say ready, stop in order."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import sys
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import CannotConnect, Failure, usage
from kafkaesque.cli.render import Screen
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.client.ports import Log, LogError
from kafkaesque.tasks.app import App
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.crew import Crew
from kafkaesque.tasks.metrics_text import timer_metrics, worker_metrics
from kafkaesque.tasks.status_page import StatusPage
from kafkaesque.tasks.system import SystemClock
from kafkaesque.tasks.timers.election import Alone, Elected, Ownership
from kafkaesque.tasks.timers.service import TimerService


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
    summary = run_until_done(_worker(connection, wanted))
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
    summary = run_until_done(_timers(connection, wanted))
    if screen.as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(f"stopped after {summary['fired']} timers")


def run_until_done(coroutine: Coroutine[Any, Any, dict[str, Any]]) -> dict[str, Any]:
    try:
        import uvloop

        return uvloop.run(coroutine)
    except LogError as error:
        raise Failure(str(error)) from None
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None


async def _worker(connection: Connection, wanted: WorkerWanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    app = wanted.app
    name = wanted.name or default_name()
    log = _log(connection, f"tasks-{app.name}-{name}")
    async with contextlib.AsyncExitStack() as stack:
        crew = Crew(app, log, wanted.config, name, wanted.queues or None)
        service = None
        if wanted.timers:
            service = _service(log, wanted.zookeeper, name, wanted.data, wanted.config)
        page = StatusPage(
            lambda: worker_metrics(crew.counts) + (timer_metrics(service) if service else ""),
            lambda: {**crew.status(), **(_timer_status(service) if service else {})},
            lambda: crew.trouble() or (service.error if service else None),
        )
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {"worker": name, "app": app.name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(wanted.data / f"worker-{name}.json", facts))
        runs = [crew.run()] if service is None else [crew.run(), service.run()]
        readies = [crew.ready] if service is None else [crew.ready, service.ready]
        await _until_stopped(runs, readies, stopping, facts, [crew.stop, *_stops(service)])
    return {**facts, **crew.status(), "abandoned_threads": crew.abandoned_threads}


def _stops(service: TimerService | None) -> list[Any]:
    return [] if service is None else [service.stop]


async def _timers(connection: Connection, wanted: TimersWanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    name = wanted.name or default_name()
    log = _log(connection, f"tasks-timers-{name}")
    async with contextlib.AsyncExitStack() as stack:
        service = _service(log, wanted.zookeeper, name, wanted.data, wanted.config)
        page = StatusPage(
            lambda: timer_metrics(service), lambda: _timer_status(service), lambda: service.error
        )
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {"timers": name, "http": http, "pid": str(os.getpid())}
        stack.enter_context(facts_file(wanted.data / "timers.json", facts))
        await _until_stopped([service.run()], [service.ready], stopping, facts, [service.stop])
    return {**facts, **_timer_status(service)}


def _service(log: Log, zookeeper: str, name: str, data: Path, config: TasksConfig) -> TimerService:
    ownership: Ownership = Elected(zookeeper, name) if zookeeper else Alone()
    return TimerService(log, ownership, data / "timers", SystemClock(), config)


def _timer_status(service: TimerService) -> dict[str, Any]:
    return {
        "owned": sorted(service.owned),
        "caught_up": sorted(service.caught_up),
        "fired": service.counts.fired,
        "cancelled": service.counts.cancelled,
        "pending": sum(service.counts.pending.values()),
        "timers_error": service.error,
    }


async def _until_stopped(
    runs: list[Coroutine[Any, Any, None]],
    readies: list[asyncio.Event],
    stopping: asyncio.Event,
    facts: Mapping[str, str],
    stops: list[Any],
) -> None:
    """Run everything, say ready when all are, and end all when one ends or a signal comes."""
    running = [asyncio.create_task(run) for run in runs]
    stop = asyncio.create_task(stopping.wait())
    ready = asyncio.create_task(_all_set(readies))
    try:
        await asyncio.wait([*running, stop, ready], return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            say_ready(facts)
            await asyncio.wait([*running, stop], return_when=asyncio.FIRST_COMPLETED)
        for one in stops:
            one()
        await asyncio.gather(*running)
    finally:
        for task in (*running, stop, ready):
            task.cancel()
        await asyncio.gather(*running, stop, ready, return_exceptions=True)


async def _all_set(events: list[asyncio.Event]) -> None:
    for event in events:
        await event.wait()


def _log(connection: Connection, client_id: str) -> KafkaLog:
    return KafkaLog(connection.bootstrap, connection.properties, client_id=client_id)


def default_name() -> str:
    return f"{socket.gethostname()}-{os.getpid()}"


def host_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise usage(f"'{text}' is not HOST:PORT.")
    return host, int(port)


def stop_signals(end_with_stdin: bool) -> asyncio.Event:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    if end_with_stdin:
        loop.add_reader(sys.stdin.fileno(), stopping.set)
    return stopping


def say_ready(facts: Mapping[str, str]) -> None:
    click.echo("ready " + " ".join(f"{name}={value}" for name, value in facts.items()))
    sys.stdout.flush()


@contextlib.contextmanager
def facts_file(path: Path, facts: Mapping[str, str]) -> Iterator[None]:
    """Pid and addresses, for as long as this process runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(dict(facts)) + "\n")
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
