"""HTTP endpoints other than the API: pages, live updates, assets, sessions, health, metrics."""

from __future__ import annotations

import gzip
import mimetypes
import time
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.web.config import ConsoleConfig
from kafkaesque.console.web.live import STREAMS_MAX, LiveUpdates
from kafkaesque.console.web.metrics import CONTENT_TYPE, PageTimings, exposition
from kafkaesque.console.web.pages import PAGES, context_of, find_visit, layout_context
from kafkaesque.console.web.rendering import ROOT, TemplateRenderer
from kafkaesque.console.web.responses import ERROR_STATUSES, json_response, read_body
from kafkaesque.console.web.security import (
    COOKIE,
    AccessDenied,
    OperatorAccess,
    TooManyAttempts,
    address_of,
    require_operator,
    require_reader,
    session_of,
)

YEAR_S: Final = 31_536_000


class SignInBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    password: str


class Site:
    """The endpoints, and the state that they share: operator sessions, page timings, assets."""

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
        # The scope has the decoded path; names may contain slashes and percent signs.
        visit = find_visit(request.scope["path"], dict(request.query_params), is_operator)
        if visit is None:
            raise ResourceNotFound("the page does not exist")
        try:
            require_reader(request, self.access, self._is_private)
            context = await context_of(self._state, visit)
            html, status = self._rendering.page(visit.page.template, context), 200
        except AccessDenied as error:
            frame = {**layout_context(self._state, visit), "menu": [], "error": str(error)}
            html, status = self._rendering.page("error.html", frame), error.status
        except tuple(ERROR_STATUSES) as error:
            frame = {**layout_context(self._state, visit), "error": str(error)}
            html, status = self._rendering.page("error.html", frame), ERROR_STATUSES[type(error)]
        seconds = time.perf_counter() - began
        self.timings.observe(visit.page.template, seconds)
        headers = {"Server-Timing": f"page;dur={seconds * 1000:.2f}"}
        return Response(html, status, headers, media_type="text/html; charset=utf-8")

    async def live(self, request: Request) -> Response:
        require_reader(request, self.access, self._is_private)
        if self._live.streams >= STREAMS_MAX:
            return PlainTextResponse("too many pages with live updates are open\n", 503)
        query = dict(request.query_params)
        path, series = query.pop("_page", "/"), query.pop("_series", "")
        is_operator = session_of(request, self.access) is not None
        visit = find_visit(path, query, is_operator)
        if visit is None:
            raise ResourceNotFound("the page does not exist")
        names = [name for name in series.split(",") if name]
        return StreamingResponse(
            self._live.stream(visit, names),
            media_type="text/event-stream",
            headers={"X-Accel-Buffering": "no"},
        )

    async def asset(self, request: Request) -> Response:
        """A static file, compressed at startup. Its URL has a version, so browsers may cache it."""
        found = self._assets.get(request.path_params["file"])
        if found is None:
            raise ResourceNotFound("the file does not exist")
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
        """Browsers request this path where no page names an icon, for example for JSON."""
        _, plain, _ = self._assets["icon.svg"]
        return Response(plain, media_type="image/svg+xml")

    async def session(self, request: Request) -> Response:
        found = session_of(request, self.access)
        return json_response({
            "is_operator": found is not None,
            "csrf": found.csrf if found else None,
            "is_possible": self.access.is_enabled,
        })  # fmt: skip

    async def sign_in(self, request: Request) -> Response:
        if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise AccessDenied(403, "requests from other sites are not allowed")
        body = await read_body(request, SignInBody)
        try:
            found = self.access.sign_in(body.password, address_of(request))
        except TooManyAttempts:
            raise AccessDenied(429, "too many wrong passwords; try again later") from None
        if found is None:
            raise AccessDenied(401, "the password is wrong")
        response = json_response({"is_operator": True, "csrf": found.csrf})
        response.set_cookie(COOKIE, found.id, httponly=True, samesite="strict",
                            secure=request.url.scheme == "https")  # fmt: skip
        return response

    async def sign_out(self, request: Request) -> Response:
        require_operator(request, self.access)
        self.access.sign_out(request.cookies.get(COOKIE))
        response = json_response({"is_operator": False})
        response.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return response

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
        return PlainTextResponse(f"{view.error or 'connecting to the cluster'}\n", 503)


def _assets() -> dict[str, tuple[str, bytes, bytes]]:
    found = {}
    for path in (ROOT / "static").iterdir():
        data = path.read_bytes()
        media = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        found[path.name] = (media, data, gzip.compress(data, 9))
    return found
