"""Puts a console together: state, pages, API, health, metrics; and runs it."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import logging
import mimetypes
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from kafkaesque.console.cluster.link import Security
from kafkaesque.console.cluster.links import KafkaLinks, read_addresses
from kafkaesque.console.cluster.operating import Operating
from kafkaesque.console.cluster.sampler import Sampler
from kafkaesque.console.cluster.sasl import read_credentials, read_tls
from kafkaesque.console.decoding.avro import Schemas
from kafkaesque.console.documents.state import NotThere, State
from kafkaesque.console.messages.scanning import Scanner
from kafkaesque.console.messages.writing import Writer
from kafkaesque.console.services.control import Processes
from kafkaesque.console.services.coordination import Coordination
from kafkaesque.console.services.dead_letters import DeadLetters
from kafkaesque.console.services.scraper import Scraper
from kafkaesque.console.services.trends import Trends
from kafkaesque.console.web.access import Access, TooManyAttempts
from kafkaesque.console.web.answers import STATUSES, failure_answer, json_answer, read_body
from kafkaesque.console.web.api import Api
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.guarding import (
    COOKIE,
    Forbidden,
    Guard,
    host_test,
    require_operator,
    require_reader,
    session_of,
)
from kafkaesque.console.web.live import STREAMS_MAX, Live
from kafkaesque.console.web.metrics import CONTENT_TYPE, Timings, exposition
from kafkaesque.console.web.pages import PAGES, context_of, find_visit, frame_of
from kafkaesque.console.web.rendering import ROOT, Rendering

logger = logging.getLogger(__name__)

YEAR_S: Final = 31_536_000


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str


def build_state(config: ConsoleConfig) -> State:
    """InvalidSecurity if the client properties ask for what the console has not."""
    properties = {**config.properties, "bootstrap.servers": config.bootstrap,
                  "client.id": "kafkaesque-console"}  # fmt: skip
    security = Security(read_tls(properties), read_credentials(properties), properties)
    links = KafkaLinks(read_addresses(config.bootstrap), security)
    sampler = Sampler(links, config.settings.interval_ms / 1000)
    processes = Processes(config.control_file)
    scanner = Scanner(properties, Schemas(config.schemas, config.schema_registry))

    def urls() -> Iterable[str]:
        return (*config.metrics, *processes.metrics_urls())

    return State(
        links=links,
        sampler=sampler,
        scraper=Scraper(urls, sampler.history),
        scanner=scanner,
        operating=Operating(links, lambda: sampler.view.controller),
        writer=Writer(properties),
        coordination=Coordination(config.coordination),
        processes=processes,
        trends=Trends(links, sampler, scanner),
        dead_letters=DeadLetters(config.bootstrap, config.properties),
        pipeline_data=config.pipeline_data,
        chat_url=config.chat_url,
    )


async def supervise(name: str, work: Any) -> None:
    """A watcher that fails says so in the log; the console goes on without what it watched."""
    try:
        await work
    except Exception:
        # A supervisor: the bug of one watcher must not end the console.
        logger.exception("the console's %s stopped; what it watched is no longer shown", name)


@contextlib.asynccontextmanager
async def watching(state: State) -> AsyncIterator[None]:
    """The loops that look at everything, while the block runs."""
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


class Site:
    """Endpoints that are no JSON documents: pages, live parts, assets, session, health."""

    def __init__(self, state: State, config: ConsoleConfig) -> None:
        session_s = config.settings.session_hours * 3600.0
        self.access = Access(config.password, session_s, time.monotonic)
        self.timings = Timings()
        self._state = state
        self._is_private = config.settings.is_private
        self._rendering = Rendering()
        self._live = Live(state, self._rendering)
        self._assets = _assets()

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/live", self.live),
            Route("/metrics", self.metrics),
            Route("/healthz", self.healthz),
            Route("/readyz", self.readyz),
            Route("/api/session", self.session),
            Route("/api/session", self.sign_in, methods=["POST"]),
            Route("/api/session", self.sign_out, methods=["DELETE"]),
            Route("/static/{version}/{file}", self.asset),
            Route("/favicon.ico", self.icon),
            *(Route(page.pattern, self.page) for page in PAGES),
        ]

    async def page(self, request: Request) -> Response:
        began = time.perf_counter()
        is_operator = session_of(request, self.access) is not None
        # Of the scope, because there it is decoded: names may hold slashes and percent signs.
        visit = find_visit(request.scope["path"], dict(request.query_params), is_operator)
        if visit is None:
            raise NotThere("there is no such page")
        try:
            require_reader(request, self.access, self._is_private)
            context = await context_of(self._state, visit)
            html, status = self._rendering.page(visit.page.template, context), 200
        except Forbidden as error:
            frame = {**frame_of(self._state, visit), "menu": [], "error": str(error)}
            html, status = self._rendering.page("error.html", frame), error.status
        except tuple(STATUSES) as error:
            frame = {**frame_of(self._state, visit), "error": str(error)}
            html, status = self._rendering.page("error.html", frame), STATUSES[type(error)]
        seconds = time.perf_counter() - began
        self.timings.observe(visit.page.template, seconds)
        headers = {"Server-Timing": f"page;dur={seconds * 1000:.2f}"}
        return Response(html, status, headers, media_type="text/html; charset=utf-8")

    async def live(self, request: Request) -> Response:
        require_reader(request, self.access, self._is_private)
        if self._live.streams >= STREAMS_MAX:
            return PlainTextResponse("too many live pages are open\n", 503)
        query = dict(request.query_params)
        path, series = query.pop("_page", "/"), query.pop("_series", "")
        is_operator = session_of(request, self.access) is not None
        visit = find_visit(path, query, is_operator)
        if visit is None:
            raise NotThere("there is no such page")
        names = [name for name in series.split(",") if name]
        return StreamingResponse(
            self._live.stream(visit, names),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def asset(self, request: Request) -> Response:
        """Compressed once; named by their version, so that a browser asks only once."""
        found = self._assets.get(request.path_params["file"])
        if found is None:
            raise NotThere("there is no such file")
        media, plain, packed = found
        headers = {
            "Cache-Control": f"public, max-age={YEAR_S}, immutable",
            "Vary": "Accept-Encoding",
        }
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["Content-Encoding"] = "gzip"
            plain = packed
        return Response(plain, media_type=media, headers=headers)

    async def icon(self, request: Request) -> Response:
        """Browsers ask for it by this name where no page told them another: with JSON, say."""
        _, plain, _ = self._assets["icon.svg"]
        return Response(plain, media_type="image/svg+xml")

    async def session(self, request: Request) -> Response:
        found = session_of(request, self.access)
        return json_answer({
            "is_operator": found is not None,
            "csrf": found.csrf if found else None,
            "is_possible": self.access.is_possible,
        })  # fmt: skip

    async def sign_in(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Forbidden(403, "that came from another site")
        body = await read_body(request, SignIn)
        try:
            found = self.access.sign_in(body.password)
        except TooManyAttempts:
            raise Forbidden(429, "too many wrong passwords; wait a moment") from None
        if found is None:
            raise Forbidden(401, "that is not the operator's password")
        answer = json_answer({"is_operator": True, "csrf": found.csrf})
        answer.set_cookie(COOKIE, found.id, httponly=True, samesite="strict",
                          secure=request.url.scheme == "https")  # fmt: skip
        return answer

    async def sign_out(self, request: Request) -> Response:
        require_operator(request, self.access)
        self.access.sign_out(request.cookies.get(COOKIE))
        answer = json_answer({"is_operator": False})
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer

    async def metrics(self, request: Request) -> Response:
        require_reader(request, self.access, self._is_private)
        text = exposition(self._state, self.timings, self._live.streams)
        return Response(text, media_type=CONTENT_TYPE)

    async def healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(self, _request: Request) -> Response:
        view = self._state.sampler.view
        if view.sampled_s and view.error is None:
            return PlainTextResponse("ready\n")
        return PlainTextResponse(f"{view.error or 'looking for the cluster'}\n", 503)


def _assets() -> dict[str, tuple[str, bytes, bytes]]:
    found = {}
    for path in (ROOT / "static").iterdir():
        data = path.read_bytes()
        media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        found[path.name] = (media, data, gzip.compress(data, 9))
    return found


def build_application(state: State, config: ConsoleConfig) -> Starlette:
    site = Site(state, config)
    api = Api(state, site.access, config.settings.is_private)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with watching(state):
            yield

    return Starlette(
        routes=[*site.routes(), *api.routes()],
        middleware=[
            Middleware(Guard, is_host=host_test(config.host, config.settings.allowed_hosts)),
            Middleware(GZipMiddleware, minimum_size=1000, compresslevel=5),
        ],
        exception_handlers=dict.fromkeys((*STATUSES, Forbidden), failure_answer),
        lifespan=lifespan,
    )
