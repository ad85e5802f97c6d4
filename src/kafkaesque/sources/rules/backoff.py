"""Waits before the next connection, by network and class of failure. Pure.

X documents its schedule (docs.x.com, Handling disconnections) and we follow it exactly. Jetstream
and Mastodon document none beyond HTTP's own; theirs is the usual doubling. Every wait is jittered
downwards by up to half, so that many clients cut off together do not come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafkaesque.model.backoff import backoff_s


class Trouble(Enum):
    """The class of a connection failure."""

    DROPPED = "dropped"
    """It was up, and ended."""
    NETWORK = "network"
    """It did not come up: refused, reset, no route, no answer."""
    HTTP = "http"
    """The server answered with an error that may pass."""
    RATE_LIMITED = "rate limited"
    FORBIDDEN = "forbidden"
    """Token wrong or missing, or not entitled. Will not pass by waiting, but tokens get renewed."""


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
    Trouble.DROPPED: BackoffSchedule(first_s=0.0, most_s=30.0, step_s=0.5),
    Trouble.NETWORK: _DOUBLING,
    Trouble.HTTP: BackoffSchedule(first_s=1.0, most_s=120.0, doubles=True),
    Trouble.RATE_LIMITED: BackoffSchedule(first_s=30.0, most_s=600.0, doubles=True),
    Trouble.FORBIDDEN: BackoffSchedule(first_s=30.0, most_s=600.0, doubles=True),
}
SCHEDULES: dict[str, dict[Trouble, BackoffSchedule]] = {
    "bluesky": _USUAL,
    "mastodon": _USUAL,
    "x": {
        # "Once an established connection drops, attempt to reconnect immediately."
        Trouble.DROPPED: BackoffSchedule(first_s=0.0, most_s=16.0, step_s=0.25),
        # "TCP/IP: back off linearly by 250 ms, up to 16 s."
        Trouble.NETWORK: BackoffSchedule(first_s=0.25, most_s=16.0, step_s=0.25),
        # "HTTP errors: exponentially, from 5 s, up to 320 s."
        Trouble.HTTP: BackoffSchedule(first_s=5.0, most_s=320.0, doubles=True),
        # "429: exponentially, from 1 minute."
        Trouble.RATE_LIMITED: BackoffSchedule(first_s=60.0, most_s=900.0, doubles=True),
        Trouble.FORBIDDEN: BackoffSchedule(first_s=60.0, most_s=900.0, doubles=True),
    },
}


class ReconnectBackoff:
    """The waits of one connection. `scale` shrinks all of them, for tests and local servers."""

    def __init__(self, network: str, scale: float = 1.0) -> None:
        self._schedules = SCHEDULES[network]
        self._scale = scale
        self._trouble: Trouble | None = None
        self._attempt = 0

    def succeeded(self) -> None:
        """Something useful arrived: the next trouble is the first of its row again."""
        self._trouble = None
        self._attempt = 0

    def wait_s(self, trouble: Trouble, chance: float, asked_s: float | None = None) -> float:
        """The wait after `trouble`; `chance` is drawn from [0, 1), `asked_s` is what the server asks.

        A new class of trouble begins its own row: a server that comes back from a network outage
        with a 429 is not waited for as if it had said so all along.
        """
        if trouble is not self._trouble:
            self._trouble = trouble
            self._attempt = 0
        full_s = self._schedules[trouble].wait_s(self._attempt)
        self._attempt += 1
        if asked_s is not None and asked_s > full_s:
            return asked_s
        return full_s * (1.0 - chance / 2) * self._scale
