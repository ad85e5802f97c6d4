"""Waits before the next connection, by network and kind of failure. Pure.

X documents its schedule (docs.x.com, Handling disconnections) and we follow it exactly. Jetstream
and Mastodon document none beyond HTTP's own; theirs is the usual doubling. Every wait is jittered
downwards by up to half, so that many clients cut off together do not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafkaesque.model.backoff import backoff_s


class FailureKind(Enum):
    """The kind of a connection failure."""

    DROPPED = "dropped"
    """The connection was established and ended later."""
    NETWORK = "network"
    """The connection was not established: refused, reset, no route, no response."""
    HTTP = "http"
    """The server responded with an error that may be temporary."""
    RATE_LIMITED = "rate limited"
    FORBIDDEN = "forbidden"
    """The token is wrong, missing or lacks the right. Waiting does not help, but the token may be renewed."""


@dataclass(frozen=True, slots=True)
class BackoffSchedule:
    """Waits of `first_s`, then each twice as long or longer by `step_s`, up to `most_s`."""

    first_s: float
    most_s: float
    step_s: float = 0.0
    doubles: bool = False

    def wait_s(self, attempt: int) -> float:
        """Before attempt 0, 1, 2, ... after the failure."""
        if self.doubles:
            return backoff_s(attempt, self.first_s, self.most_s)
        return min(self.most_s, self.first_s + self.step_s * attempt)


_DOUBLING = BackoffSchedule(first_s=0.5, most_s=60.0, doubles=True)
_USUAL = {
    FailureKind.DROPPED: BackoffSchedule(first_s=0.0, most_s=30.0, step_s=0.5),
    FailureKind.NETWORK: _DOUBLING,
    FailureKind.HTTP: BackoffSchedule(first_s=1.0, most_s=120.0, doubles=True),
    FailureKind.RATE_LIMITED: BackoffSchedule(first_s=30.0, most_s=600.0, doubles=True),
    FailureKind.FORBIDDEN: BackoffSchedule(first_s=30.0, most_s=600.0, doubles=True),
}
SCHEDULES: dict[str, dict[FailureKind, BackoffSchedule]] = {
    "bluesky": _USUAL,
    "mastodon": _USUAL,
    "x": {
        # "Once an established connection drops, attempt to reconnect immediately."
        FailureKind.DROPPED: BackoffSchedule(first_s=0.0, most_s=16.0, step_s=0.25),
        # "TCP/IP: back off linearly by 250 ms, up to 16 s."
        FailureKind.NETWORK: BackoffSchedule(first_s=0.25, most_s=16.0, step_s=0.25),
        # "HTTP errors: exponentially, from 5 s, up to 320 s."
        FailureKind.HTTP: BackoffSchedule(first_s=5.0, most_s=320.0, doubles=True),
        # "429: exponentially, from 1 minute."
        FailureKind.RATE_LIMITED: BackoffSchedule(first_s=60.0, most_s=900.0, doubles=True),
        FailureKind.FORBIDDEN: BackoffSchedule(first_s=60.0, most_s=900.0, doubles=True),
    },
}


class ReconnectBackoff:
    """The waits of one connection. `scale` shrinks all of them, for tests and local servers."""

    def __init__(self, network: str, scale: float = 1.0) -> None:
        self._schedules = SCHEDULES[network]
        self._scale = scale
        self._kind: FailureKind | None = None
        self._attempt = 0

    def succeeded(self) -> None:
        """Restarts the schedule: the next failure counts as the first of its kind."""
        self._kind = None
        self._attempt = 0

    def wait_s(self, kind: FailureKind, chance: float, asked_s: float | None = None) -> float:
        """The wait after a failure. `chance` is drawn from [0, 1), `asked_s` is the wait that the server asks for.

        A failure of another kind starts its own schedule: the first 429 after a network outage does not
        count the attempts of the outage.
        """
        if kind is not self._kind:
            self._kind = kind
            self._attempt = 0
        full_s = self._schedules[kind].wait_s(self._attempt)
        self._attempt += 1
        if asked_s is not None and asked_s > full_s:
            return asked_s
        return full_s * (1.0 - chance / 2) * self._scale
