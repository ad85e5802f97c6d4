"""Builds the console from its configuration and runs its HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any, Final

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware

from kafkaesque.client.wire.address import parse_bootstrap
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.client.wire.security import read_security
from kafkaesque.console.cluster.admin import ConsoleAdmin
from kafkaesque.console.cluster.sampler import Sampler
from kafkaesque.console.decoding.avro import Schemas
from kafkaesque.console.documents.state import ConsoleState
from kafkaesque.console.messages.producer import RecordProducer
from kafkaesque.console.messages.scan import Scanner
from kafkaesque.console.services.coordination import CoordinationReader
from kafkaesque.console.services.dead_letters import DeadLetters
from kafkaesque.console.services.pipeline import TrendFollower
from kafkaesque.console.services.process_control import ProcessControl
from kafkaesque.console.services.scraper import Scraper
from kafkaesque.console.web.api import Api
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.responses import ERROR_STATUSES, error_response
from kafkaesque.console.web.security import (
    AccessDenied,
    HostCheckMiddleware,
    allowed_hosts_test,
)
from kafkaesque.console.web.site import Site

logger = logging.getLogger(__name__)

CLIENT_ID: Final = "kafkaesque-console"
GRACE_SECONDS: Final = 2
"""Live updates never end by themselves; at shutdown they are cut after this time."""
BACKLOG: Final = 512


def build_state(config: ConsoleConfig) -> ConsoleState:
    """Create all data sources. Raises InvalidSecurity if the TLS or SASL properties cannot be used."""
    properties = {**config.properties, "bootstrap.servers": config.bootstrap,
                  "client.id": CLIENT_ID}  # fmt: skip
    links = ConnectionPool(
        parse_bootstrap(config.bootstrap), read_security(properties), client_id=CLIENT_ID
    )
    sampler = Sampler(links, config.settings.interval_ms / 1000)
    processes = ProcessControl(config.control_file)
    scanner = Scanner(properties, Schemas(config.schemas, config.schema_registry))

    def urls() -> Iterable[str]:
        return (*config.metrics, *processes.metrics_urls())

    return ConsoleState(
        links=links,
        sampler=sampler,
        scraper=Scraper(urls, sampler.history),
        scanner=scanner,
        admin=ConsoleAdmin(links, lambda: sampler.view.controller),
        producer=RecordProducer(properties),
        coordination=CoordinationReader(config.coordination),
        processes=processes,
        trends=TrendFollower(links, sampler, scanner),
        dead_letters=DeadLetters(config.bootstrap, config.properties),
        pipeline_data=config.pipeline_data,
        chat_url=config.chat_url,
    )


async def supervise(name: str, work: Any) -> None:
    """Run a background task; if it fails, log that and keep the console running without its data."""
    try:
        await work
    except Exception:
        # A bug in one background task must not end the console.
        logger.exception("background task %s failed; its data is no longer updated", name)


@contextlib.asynccontextmanager
async def background_tasks(state: ConsoleState) -> AsyncIterator[None]:
    """Run the sampler and the other pollers while the block runs; then close all connections."""
    work = {
        "sampler": state.sampler.run(),
        "scraper": state.scraper.run(),
        "processes": state.processes.run(),
        "trends": state.trends.run(),
    }
    tasks = [asyncio.create_task(supervise(name, loop)) for name, loop in work.items()]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        state.links.close()
        state.scanner.close()
        await state.coordination.close()


def build_application(state: ConsoleState, config: ConsoleConfig) -> Starlette:
    site = Site(state, config)
    api = Api(state, site.access, config.settings.is_private)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with background_tasks(state):
            yield

    return Starlette(
        routes=[*site.routes(), *api.routes()],
        middleware=[
            Middleware(
                HostCheckMiddleware,
                is_host=allowed_hosts_test(config.host, config.settings.allowed_hosts),
            ),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5),
        ],
        exception_handlers=dict.fromkeys((*ERROR_STATUSES, AccessDenied), error_response),
        lifespan=lifespan,
    )


class _Server(uvicorn.Server):
    """Leaves signals to the caller; uvicorn would raise them again at its end."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. Raises OSError if the address is not available."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    opened = socket.socket(family, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((host, port))
        opened.listen(BACKLOG)
    except OSError:
        opened.close()
        raise
    return opened


async def run_console(
    config: ConsoleConfig, stopping: asyncio.Event, on_ready: Callable[[str], None]
) -> None:
    """Serve until `stopping` is set; calls `on_ready` with the address once requests are accepted."""
    opened = listen(config.host, config.port)
    host, port = opened.getsockname()[:2]
    application = build_application(build_state(config), config)
    server = _Server(
        uvicorn.Config(
            application,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            server_header=False,
        )
    )
    serving = asyncio.create_task(server.serve(sockets=[opened]))
    waiting = asyncio.create_task(stopping.wait())
    try:
        while not server.started and not serving.done():
            await asyncio.wait((serving,), timeout=0.02)
        if server.started:
            on_ready(f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
        await asyncio.wait((serving, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        server.should_exit = True
        waiting.cancel()
        await serving
