"""Access control: operator sessions, CSRF tokens, password attempts, host check, security headers.

Anyone may read unless the console is private; actions require an operator. A session is a random id
in a cookie (HttpOnly, SameSite=Strict), and its CSRF token must come with every action. A program
sends `Authorization: Bearer PASSWORD` instead, which a browser never does by itself.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafkaesque.model.token_bucket import TokenBucket

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

SESSIONS_MAX: Final = 1000
FREE_ATTEMPTS: Final = 5
ATTEMPT_EVERY_S: Final = 2.0
"""One wrong password is allowed in this time once the free attempts are used up."""
ADDRESSES_MAX: Final = 1000
"""Addresses whose wrong passwords are counted; the one that failed longest ago is forgotten first."""


@dataclass(frozen=True, slots=True)
class OperatorSession:
    """An operator who signed in; `ends_s` is on the clock of `OperatorAccess`."""

    id: str
    csrf: str
    ends_s: float


class TooManyAttempts(Exception):
    """Too many wrong passwords from one address in a short time."""


class OperatorAccess:
    """Checks passwords and keeps sessions. `clock` returns monotonic seconds."""

    def __init__(self, password: str, session_s: float, clock: Callable[[], float]) -> None:
        self._password = _digest(password) if password else None
        self._session_s = session_s
        self._clock = clock
        self._sessions: dict[str, OperatorSession] = {}
        self._wrong: dict[str, TokenBucket] = {}

    @property
    def is_enabled(self) -> bool:
        """False if no password is configured."""
        return self._password is not None

    def is_password(self, text: str, address: str) -> bool:
        """Whether this is the password. Raises TooManyAttempts after too many wrong ones from
        `address`; others are not affected.

        The password is not compared then: an answer would let a guesser go on at full speed.
        """
        now, key = self._clock(), _network(address)
        bucket = self._wrong.get(key)
        if bucket is not None and not bucket.has_token(now):
            raise TooManyAttempts
        if self._password is not None and hmac.compare_digest(_digest(text), self._password):
            return True
        self._wrong.pop(key, None)
        bucket = bucket or TokenBucket(1 / ATTEMPT_EVERY_S, FREE_ATTEMPTS, now)
        bucket.take(now)
        while len(self._wrong) >= ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        self._wrong[key] = bucket
        return False

    def sign_in(self, password: str, address: str) -> OperatorSession | None:
        if not self.is_password(password, address):
            return None
        now = self._clock()
        self._sessions = {key: item for key, item in self._sessions.items() if item.ends_s > now}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = OperatorSession(
            secrets.token_urlsafe(32), secrets.token_urlsafe(32), now + self._session_s
        )
        self._sessions[session.id] = session
        return session

    def session(self, session_id: str | None) -> OperatorSession | None:
        found = self._sessions.get(session_id or "")
        return found if found is not None and found.ends_s > self._clock() else None

    def sign_out(self, session_id: str | None) -> None:
        self._sessions.pop(session_id or "", None)


def is_csrf_token(session: OperatorSession, token: str | None) -> bool:
    return hmac.compare_digest((token or "").encode(), session.csrf.encode())


def _digest(text: str) -> bytes:
    """A digest, so that comparisons take the same time for every guess and no password is kept."""
    return hashlib.sha256(text.encode()).digest()


def _network(address: str) -> str:
    """The IPv4 address, or the /64 of an IPv6 address, within which a client may choose freely."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4:
        return address
    return str(ipaddress.ip_network((found.packed, 64), strict=False))


def address_of(request: HTTPConnection) -> str:
    return request.client.host if request.client is not None else ""


class AccessDenied(Exception):
    """The request is not allowed; `status` is 401, 403 or 429."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class HostCheckMiddleware:
    """Rejects unknown Host headers and adds security headers to every response.

    Without the check, a site whose DNS name resolves to 127.0.0.1 could read the console from a
    browser (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, is_host: Callable[[str], bool]) -> None:
        self._app = app
        self._is_host = is_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if not self._is_host(host):
            response = PlainTextResponse(
                f"'{host}' is not an allowed host name of this console\n", 421
            )
            await response(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


def allowed_hosts_test(listening: str, names: tuple[str, ...]) -> Callable[[str], bool]:
    """A test for Host headers: loopback, the listening address, and the configured names."""
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
        # DNS rebinding needs a name. An address that reaches a wildcard listener is one of ours.
        return address.is_loopback or listening in ("0.0.0.0", "::")  # noqa: S104

    return is_host


def session_of(request: HTTPConnection, access: OperatorAccess) -> OperatorSession | None:
    return access.session(request.cookies.get(COOKIE))


def has_bearer_password(request: HTTPConnection, access: OperatorAccess) -> bool:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return False
    try:
        return access.is_password(token.strip(), address_of(request))
    except TooManyAttempts:
        raise AccessDenied(429, "too many wrong passwords; try again later") from None


def require_reader(request: HTTPConnection, access: OperatorAccess, is_private: bool) -> None:
    if (
        is_private
        and session_of(request, access) is None
        and not has_bearer_password(request, access)
    ):
        raise AccessDenied(401, "sign in to see this page")


def require_operator(request: Request, access: OperatorAccess) -> None:
    """Accept the password as a bearer token, or a session with its CSRF token from our own pages."""
    if has_bearer_password(request, access):
        return
    session = session_of(request, access)
    if session is None:
        raise AccessDenied(401, "only an operator may do this; sign in first")
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise AccessDenied(403, "requests from other sites are not allowed")
    if not is_csrf_token(session, request.headers.get(CSRF_HEADER)):
        raise AccessDenied(403, "the CSRF token is missing or out of date; reload the page")
