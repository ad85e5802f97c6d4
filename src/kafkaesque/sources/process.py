"""One source, or the server of synthetic posts, as a process: starts, prints ready, stops in order."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from yarl import URL

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.service.child_process import print_ready
from kafkaesque.service.process import facts_file, serve_until_stopped, stop_event
from kafkaesque.service.status_page import StatusServer
from kafkaesque.sources.config import SourceConfig
from kafkaesque.sources.connector import SourceConnector
from kafkaesque.sources.local.connections import ServerFaults
from kafkaesque.sources.local.feed import Feed, open_timeline
from kafkaesque.sources.local.server import LocalServer
from kafkaesque.sources.networks import SocialNetwork
from kafkaesque.sources.rules.frame_processor import SourceIdentity
from kafkaesque.sources.status_page import SourceStatus
from kafkaesque.sources.streams.endpoint import Endpoint, new_session


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """`properties` are those of the Kafka client. Without a `url` the process serves synthetic posts
    to itself."""

    bootstrap: str
    properties: Mapping[str, str]
    network: SocialNetwork
    tags: tuple[str, ...]
    token: str | None
    config: SourceConfig
    data: Path
    url: str | None
    name: str | None
    limit: int | None
    seed: int | None
    rate: float
    http_listen: tuple[str, int]
    end_with_stdin: bool


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Options of the server of synthetic posts."""

    listen: tuple[str, int]
    seed: int
    rate: float
    count: int | None
    token: str | None
    faults: ServerFaults
    data: Path | None
    end_with_stdin: bool


async def serve_source(options: SourceOptions) -> dict[str, Any]:
    """Follow the network until a signal comes or `limit` is reached; returns a summary.

    Raises LogError and OSError.
    """
    stopping = stop_event(options.end_with_stdin)
    async with contextlib.AsyncExitStack() as stack:
        url = options.url
        server = None
        if url is None:
            server = await stack.enter_async_context(_own_server(options))
            url = server.url
        session = await stack.enter_async_context(new_session(options.token, options.config))
        name = options.name or _default_name(options, server)
        label = f"kafkaesque:{name}"
        endpoint = Endpoint(URL(url.rstrip("/")), session, options.config, options.tags, label)
        log = KafkaLog(options.bootstrap, options.properties, client_id=f"source-{name}")
        identity = SourceIdentity(options.network.name, name)
        connector = SourceConnector(log, options.network, identity, endpoint, limit=options.limit)
        page = StatusServer(SourceStatus(connector, options.network.name))
        http = await page.start(*options.http_listen)
        stack.push_async_callback(page.stop)
        facts = {"source": name, "network": options.network.name, "url": url, "http": http,
                 "pid": str(os.getpid())}  # fmt: skip
        if server is not None:
            facts["seed"] = str(server.feed.timeline.seed)
        stack.enter_context(facts_file(options.data / "source.json", facts))
        await serve_until_stopped(
            [connector.run()], [connector.stop], lambda: connector.state.connected, stopping, facts
        )
    return {**facts, **connector.counts.as_dict(), "transactional": connector.state.transactional}


async def serve_posts(options: ServerOptions) -> dict[str, Any]:
    """Serve synthetic posts until a signal comes; returns a summary. Raises OSError."""
    stopping = stop_event(options.end_with_stdin)
    path = None if options.data is None else options.data / "timeline.json"
    timeline, started_s = open_timeline(
        path, options.seed, options.rate, options.count, time.time()
    )
    feed = Feed(timeline, started_s=started_s)
    server = LocalServer(feed, options.faults, token=options.token)
    await server.start(*options.listen)
    facts = {"http": server.address, "seed": str(timeline.seed), "pid": str(os.getpid())}
    try:
        with facts_file(None if path is None else path.with_name("server.json"), facts):
            print_ready(facts)
            await stopping.wait()
    finally:
        await server.stop()
    return {**facts, "connections": server.counts.connections, "entries": server.counts.entries}


@asynccontextmanager
async def _own_server(options: SourceOptions) -> AsyncIterator[LocalServer]:
    """The server of synthetic posts, in this process; its timeline continues from run to run."""
    path = options.data / "timeline.json"
    timeline, started_s = open_timeline(path, options.seed, options.rate, None, time.time())
    server = LocalServer(Feed(timeline, started_s=started_s))
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def _default_name(options: SourceOptions, server: LocalServer | None) -> str:
    """By server, because a cursor is valid only on the server that issued it."""
    if server is not None:
        return f"{options.network.name}-local-{server.feed.timeline.seed}"
    return f"{options.network.name}-{URL(options.url or '').host}"
