"""The processes behind `kafkaesque source run` and `serve`: start in order, say ready, stop in order."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import click
from yarl import URL

from kafkaesque.cli.client import Connection
from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import read_pair
from kafkaesque.cli.render import Screen
from kafkaesque.cli.service_process import (
    facts_file,
    host_port,
    run_service,
    say_ready,
    serve_until_stopped,
    stop_signals,
)
from kafkaesque.client.kafka import KafkaLog
from kafkaesque.sources.config import SourceConfig
from kafkaesque.sources.connector import SourceConnector
from kafkaesque.sources.local.connections import Faults
from kafkaesque.sources.local.feed import Feed, open_timeline
from kafkaesque.sources.local.server import LocalServer
from kafkaesque.sources.networks import Network
from kafkaesque.sources.rules.frame_processor import SourceIdentity
from kafkaesque.sources.status_page import StatusPage
from kafkaesque.sources.streams.endpoint import Endpoint, new_session


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `source run` was asked for."""

    network: Network
    tags: tuple[str, ...]
    token: str | None
    config: SourceConfig
    data: Path
    url: str | None
    name: str | None
    limit: int | None
    seed: int | None
    rate: float
    http_listen: str
    end_with_stdin: bool


@dataclass(frozen=True, slots=True)
class Served:
    """What `source serve` was asked for."""

    listen: str
    seed: int
    rate: float
    count: int | None
    token: str | None
    faults: tuple[str, ...]
    data: Path | None
    end_with_stdin: bool


def run_source(connection: Connection, wanted: Wanted, screen: Screen) -> None:
    summary = run_service(_source(connection, wanted))
    if screen.as_json:
        click.echo(json.dumps(summary))
    else:
        click.echo(f"stopped after {summary['posts']} posts, {summary['duplicates']} duplicates "
                   f"dropped, {summary['deletions']} deletions")  # fmt: skip


def run_server(served: Served, screen: Screen) -> None:
    summary = run_service(_server(served))
    if screen.as_json:
        click.echo(json.dumps(summary))


async def _source(connection: Connection, wanted: Wanted) -> dict[str, Any]:
    stopping = stop_signals(wanted.end_with_stdin)
    async with contextlib.AsyncExitStack() as stack:
        url = wanted.url
        server = None
        if url is None:
            server = await stack.enter_async_context(_own_server(wanted))
            url = server.url
        session = await stack.enter_async_context(new_session(wanted.token, wanted.config))
        name = wanted.name or _default_name(wanted, server)
        label = f"kafkaesque:{name}"
        endpoint = Endpoint(_parse_url(url), session, wanted.config, wanted.tags, label)
        log = KafkaLog(connection.bootstrap, connection.properties, client_id=f"source-{name}")
        identity = SourceIdentity(wanted.network.name, name)
        connector = SourceConnector(log, wanted.network, identity, endpoint, limit=wanted.limit)
        page = StatusPage(connector, wanted.network.name)
        http = await page.start(*host_port(wanted.http_listen))
        stack.push_async_callback(page.stop)
        facts = {"source": name, "network": wanted.network.name, "url": url, "http": http,
                 "pid": str(os.getpid())}  # fmt: skip
        if server is not None:
            facts["seed"] = str(server.feed.timeline.seed)
        stack.enter_context(facts_file(wanted.data / "source.json", facts))
        await serve_until_stopped(
            [connector.run()], [connector.stop], lambda: connector.state.connected, stopping, facts
        )
    return {**facts, **connector.counts.as_dict(), "transactional": connector.state.transactional}


async def _server(served: Served) -> dict[str, Any]:
    stopping = stop_signals(served.end_with_stdin)
    path = None if served.data is None else served.data / "timeline.json"
    timeline, started_s = open_timeline(path, served.seed, served.rate, served.count, time.time())
    feed = Feed(timeline, started_s=started_s)
    server = LocalServer(feed, read_faults(served.faults), token=served.token)
    await server.start(*host_port(served.listen))
    facts = {"http": server.address, "seed": str(timeline.seed), "pid": str(os.getpid())}
    try:
        with facts_file(None if path is None else path.with_name("server.json"), facts):
            say_ready(facts)
            await stopping.wait()
    finally:
        await server.stop()
    return {**facts, "connections": server.counts.connections, "entries": server.counts.entries}


@asynccontextmanager
async def _own_server(wanted: Wanted) -> AsyncIterator[LocalServer]:
    """The server of synthetic posts, in this process; its timeline goes on from run to run."""
    path = wanted.data / "timeline.json"
    timeline, started_s = open_timeline(path, wanted.seed, wanted.rate, None, time.time())
    server = LocalServer(Feed(timeline, started_s=started_s))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def read_faults(assignments: tuple[str, ...]) -> Faults:
    known = {item.name for item in fields(Faults)}
    values = {}
    for text in assignments:
        name, value = read_pair(text, "NAME=N")
        if name not in known or not value.isdecimal():
            raise usage(f"'{text}' is no fault; there are {', '.join(sorted(known))}.")
        values[name] = int(value)
    return Faults(**values)


def _default_name(wanted: Wanted, server: LocalServer | None) -> str:
    """A cursor is worth something on the server that gave it alone."""
    if server is not None:
        return f"{wanted.network.name}-local-{server.feed.timeline.seed}"
    return f"{wanted.network.name}-{URL(wanted.url or '').host}"


def _parse_url(text: str) -> URL:
    url = URL(text.rstrip("/"))
    if url.scheme not in ("http", "https") or not url.host:
        raise usage(f"'{text}' is not a URL: write https://HOST, also for WebSockets.")
    return url
