"""Close codes of connections and error codes of requests, and whether the client should retry.

Close codes 4000-4499 mean "reconnect and resume", 4500-4999 "do not reconnect until something changes"
(as in Centrifugo and Discord). A WebSocket closes with the code; on TCP the gateway sends BYE with it
first.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class CloseCode(IntEnum):
    """Why the gateway closes a connection."""

    GOING_AWAY = 4000
    """The gateway is draining: resume on one of the targets of its GOAWAY."""
    IDLE = 4001
    """No message arrived within the heartbeat timeout."""
    TOO_SLOW = 4002
    """The client did not read its events within the gateway's write timeout."""
    AUTH_EXPIRED = 4003
    """The token expired: get a new one, then resume."""
    BUSY = 4004
    """Too many connections: try another gateway, or later."""
    SERVER_ERROR = 4005
    """An internal error of the gateway."""
    AUTH_TIMEOUT = 4006
    """The client did not authenticate in time."""
    REVOKED = 4007
    """The session was logged out elsewhere: log in again."""

    BAD_VERSION = 4500
    BAD_FRAME = 4501
    """An invalid frame, or a payload that does not match its opcode."""
    TOO_LARGE = 4502
    BAD_OPCODE = 4503
    BAD_STATE = 4504
    """A message that is not allowed in this state, such as a command before AUTH."""
    AUTH_FAILED = 4505
    BAD_ORIGIN = 4506
    LOGGED_OUT = 4507
    """The client logged out."""
    TOO_MANY = 4508
    """This user has too many connections."""

    @property
    def reconnect(self) -> bool:
        return self < CloseCode.BAD_VERSION


class ErrorCode(Enum):
    """Why a request failed; the connection stays open. `retry`: the same request may succeed later."""

    RATE_LIMITED = ("rate-limited", True)
    BUSY = ("busy", True)
    UNAVAILABLE = ("unavailable", True)
    """The log or the back ends did not answer in time. A SEND may have taken effect: repeat it with
    the same id."""
    TIMEOUT = ("timeout", True)
    FORBIDDEN_OP = ("forbidden-op", False)
    TOO_MANY_SUBSCRIPTIONS = ("too-many-subscriptions", False)
    UNKNOWN_VERSION = ("unknown-version", False)
    USER_MISMATCH = ("user-mismatch", False)
    AUTH_FAILED = ("auth-failed", False)
    NAME_TAKEN = ("name-taken", False)
    INVALID = ("invalid", False)

    def __init__(self, text: str, retry: bool) -> None:
        self.text = text
        self.retry = retry


class Violation(Exception):
    """The peer violated the protocol; the connection closes with `code`. Parsers raise nothing else."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
