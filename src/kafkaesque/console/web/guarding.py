"""Around every answer: which hosts are served, the headers of a strict page, and who asked."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafkaesque.console.web.access import Access, Session, TooManyAttempts, is_csrf

COOKIE: Final = "kafkaesque-console"
CSRF_HEADER: Final = "x-csrf-token"
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Forbidden(Exception):
    """Whoever asks may not do that; `status` is 401 or 403."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class Guard:
    """Refuses hosts that are not ours: a page of another site whose name was pointed at 127.0.0.1
    must not read the console (DNS rebinding)."""

    def __init__(self, app: ASGIApp, is_host: Callable[[str], bool]) -> None:
        self._app = app
        self._is_host = is_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not self._is_host(host):
            answer = PlainTextResponse(f"'{host}' is not a name of this console\n", 421)
            await answer(scope, receive, send_strict)
            return
        await self._app(scope, receive, send_strict)


def host_test(listening: str, names: tuple[str, ...]) -> Callable[[str], bool]:
    """Loopback, the address that is listened on, and the names an operator allowed."""
    allowed = {"localhost", listening.lower(), *(name.lower() for name in names)}

    def is_host(header: str) -> bool:
        name = header.rsplit(":", 1)[0] if not header.endswith("]") else header
        name = name.strip("[]").lower()
        if name in allowed:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # An address cannot be re-bound; one that reached a wildcard listener is ours.
        return address.is_loopback or listening in ("0.0.0.0", "::")  # noqa: S104

    return is_host


def session_of(request: HTTPConnection, access: Access) -> Session | None:
    return access.session(request.cookies.get(COOKIE))


def bears_password(request: HTTPConnection, access: Access) -> bool:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return False
    try:
        return access.is_password(token.strip())
    except TooManyAttempts:
        raise Forbidden(429, "too many wrong passwords; wait a moment") from None


def require_reader(request: HTTPConnection, access: Access, is_private: bool) -> None:
    if is_private and session_of(request, access) is None and not bears_password(request, access):
        raise Forbidden(401, "sign in to read")


def require_operator(request: Request, access: Access) -> None:
    """A session with its CSRF token and from our own pages, or the password as a bearer."""
    if bears_password(request, access):
        return
    session = session_of(request, access)
    if session is None:
        raise Forbidden(401, "only an operator may do that: sign in")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise Forbidden(403, "that came from another site")
    if not is_csrf(session, request.headers.get(CSRF_HEADER)):
        raise Forbidden(403, "the page is too old: load it again")
