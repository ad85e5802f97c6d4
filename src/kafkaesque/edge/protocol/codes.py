"""Why a connection was closed and why a request failed, each with what the client should do next.

Close codes 4000-4499 mean "reconnect and resume", 4500-4999 "do not, until something changes" (after
Centrifugo and Discord). A WebSocket closes with the code; on TCP the gateway says BYE with it first.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class CloseCode(IntEnum):
    """Why the gateway closes a connection."""

    GOING_AWAY = 4000
    """The gateway drains: resume on one of the targets of its GOAWAY."""
    IDLE = 4001
    """Nothing was heard for longer than the heartbeat allows."""
    TOO_SLOW = 4002
    """Events could not be written for longer than the gateway waits."""
    AUTH_EXPIRED = 4003
    """The token ran out: get a new one, then resume."""
    BUSY = 4004
    """Too many connections: try another gateway, or later."""
    SERVER_ERROR = 4005
    """Something broke at our end."""
    AUTH_TIMEOUT = 4006
    """The connection did not say who it is in time."""
    REVOKED = 4007
    """The session was logged out elsewhere: log in again."""

    BAD_VERSION = 4500
    BAD_FRAME = 4501
    """Bytes that are no frame, or a payload that is not what its opcode promises."""
    TOO_LARGE = 4502
    BAD_OPCODE = 4503
    BAD_STATE = 4504
    """A message that may not be said now, as a command before AUTH."""
    AUTH_FAILED = 4505
    BAD_ORIGIN = 4506
    LOGGED_OUT = 4507
    """The client asked for it."""
    TOO_MANY = 4508
    """This user has too many connections."""

    @property
    def reconnect(self) -> bool:
        return self < CloseCode.BAD_VERSION


class ErrorCode(Enum):
    """Why one request failed; the connection stays. `retry`: the same request may succeed later."""

    RATE_LIMITED = ("rate-limited", True)
    BUSY = ("busy", True)
    UNAVAILABLE = ("unavailable", True)
    """The log or the back ends did not answer in time. A SEND may have taken effect: repeat it with
    its id."""
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
    """The peer broke the protocol: the connection closes with `code`. Parsers raise nothing else."""

    def __init__(self, code: CloseCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text
