"""Puts a console together: state, pages, API, health, metrics; and runs it."""

from __future__ import annotations

import gzip
import mimetypes
import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from kafkaesque.console.documents.state import ConsoleState, NotFound
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.live import STREAMS_MAX, LiveUpdates
from kafkaesque.console.web.metrics import CONTENT_TYPE, PageTimings, exposition
from kafkaesque.console.web.pages import PAGES, context_of, find_visit, frame_of
from kafkaesque.console.web.rendering import ROOT, TemplateRenderer
from kafkaesque.console.web.responses import STATUSES, json_response, read_body
from kafkaesque.console.web.security import (
    COOKIE,
    AccessDenied,
    OperatorAccess,
    TooManyAttempts,
    require_operator,
    require_reader,
    session_of,
)

YEAR_S: Final = 31_536_000


class SignIn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str


class Site:
    """Endpoints that are no JSON documents: pages, live parts, assets, session, health."""

    def __init__(self, state: ConsoleState, config: ConsoleConfig) -> None:
        session_s = config.settings.session_hours * 3600.0
        self.access = OperatorAccess(config.password, session_s, time.monotonic)
        self.timings = PageTimings()
        self._state = state
        self._is_private = config.settings.is_private
        self._rendering = TemplateRenderer()
        self._live = LiveUpdates(state, self._rendering)
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
            raise NotFound("there is no such page")
        try:
            require_reader(request, self.access, self._is_private)
            context = await context_of(self._state, visit)
            html, status = self._rendering.page(visit.page.template, context), 200
        except AccessDenied as error:
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
            raise NotFound("there is no such page")
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
            raise NotFound("there is no such file")
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
        return json_response({
            "is_operator": found is not None,
            "csrf": found.csrf if found else None,
            "is_possible": self.access.is_possible,
        })  # fmt: skip

    async def sign_in(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise AccessDenied(403, "that came from another site")
        body = await read_body(request, SignIn)
        try:
            found = self.access.sign_in(body.password)
        except TooManyAttempts:
            raise AccessDenied(429, "too many wrong passwords; wait a moment") from None
        if found is None:
            raise AccessDenied(401, "that is not the operator's password")
        answer = json_response({"is_operator": True, "csrf": found.csrf})
        answer.set_cookie(COOKIE, found.id, httponly=True, samesite="strict",
                          secure=request.url.scheme == "https")  # fmt: skip
        return answer

    async def sign_out(self, request: Request) -> Response:
        require_operator(request, self.access)
        self.access.sign_out(request.cookies.get(COOKIE))
        answer = json_response({"is_operator": False})
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
