"""Who may do what: anyone reads, an operator acts. Sessions, CSRF tokens, password attempts.

A session is a random id in a cookie (HttpOnly, SameSite=Strict); its CSRF token stands in the page and
comes back with every action. A program sends `Authorization: Bearer PASSWORD` instead of both: a
browser never does that by itself.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SESSIONS_MAX: Final = 1000
FREE_ATTEMPTS: Final = 5
ATTEMPT_EVERY_S: Final = 2.0
"""Of wrong passwords, once the free ones are used up."""


@dataclass(frozen=True, slots=True)
class Session:
    id: str
    csrf: str
    ends_s: float


class TooManyAttempts(Exception):
    """Wrong passwords came too fast: wait."""


class Access:
    """`clock` gives monotonic seconds."""

    def __init__(self, password: str, session_s: float, clock: Callable[[], float]) -> None:
        self._password = _digest(password) if password else None
        self._session_s = session_s
        self._clock = clock
        self._sessions: dict[str, Session] = {}
        self._attempts_left = float(FREE_ATTEMPTS)
        self._attempted_s = clock()

    @property
    def is_possible(self) -> bool:
        return self._password is not None

    def is_password(self, text: str) -> bool:
        """TooManyAttempts while somebody is guessing; right ones cost nothing."""
        now = self._clock()
        refill = (now - self._attempted_s) / ATTEMPT_EVERY_S
        self._attempts_left = min(FREE_ATTEMPTS, self._attempts_left + refill)
        self._attempted_s = now
        if self._attempts_left < 1:
            raise TooManyAttempts
        if self._password is not None and hmac.compare_digest(_digest(text), self._password):
            return True
        self._attempts_left -= 1
        return False

    def sign_in(self, password: str) -> Session | None:
        if not self.is_password(password):
            return None
        now = self._clock()
        self._sessions = {key: item for key, item in self._sessions.items() if item.ends_s > now}
        while len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]
        session = Session(secrets.token_urlsafe(32), secrets.token_urlsafe(32),
                          now + self._session_s)  # fmt: skip
        self._sessions[session.id] = session
        return session

    def session(self, session_id: str | None) -> Session | None:
        found = self._sessions.get(session_id or "")
        return found if found is not None and found.ends_s > self._clock() else None

    def sign_out(self, session_id: str | None) -> None:
        self._sessions.pop(session_id or "", None)


def is_csrf(session: Session, token: str | None) -> bool:
    return hmac.compare_digest((token or "").encode(), session.csrf.encode())


def _digest(text: str) -> bytes:
    """Of equal length for every guess; the password itself is not kept."""
    return hashlib.sha256(text.encode()).digest()
