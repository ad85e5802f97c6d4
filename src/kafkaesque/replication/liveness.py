"""Whether the other end of a link is still there, and how long it will think so of us. No I/O.

Silence is counted in pulses of our own process as well as in time. Between two pulses the event
loop has looked at every socket, so a process that was stopped, or busy for long, calls nobody
silent before it has read what arrived meanwhile.
"""

from __future__ import annotations

from math import ceil

from kafkaesque.model.errors import ProtocolError

_STAMPS_PER_SECOND = 1_000_000


class Liveness:
    """One link's. All times are seconds on our own monotonic clock."""

    __slots__ = (
        "_last_heard",
        "_last_stamp",
        "_lease_seconds",
        "_margin_seconds",
        "_pulses",
        "_pulses_max",
        "_silence_seconds",
        "lease_until",
        "round_trip_seconds",
    )

    def __init__(
        self, now: float, silence_seconds: float, pulse_seconds: float, margin_seconds: float
    ) -> None:
        self._silence_seconds = silence_seconds
        self._margin_seconds = margin_seconds
        self._lease_seconds = 0.0
        # The first pulse may come at once after we heard something.
        self._pulses_max = ceil(silence_seconds / pulse_seconds) + 1
        self._pulses = 0
        self._last_heard = now
        self._last_stamp = 0
        self.lease_until = 0.0
        """Until then the other side does not call us silent: it answered a ping that left this
        long before, less a margin for clocks of different rate. (A connection that breaks is
        noticed at once, by both ends; then this is void.)"""
        self.round_trip_seconds = 0.0
        """Of the last ping that was answered."""

    def promised(self, silence_seconds: float) -> None:
        """The other side calls us silent when it has heard nothing for so long, not before."""
        self._lease_seconds = max(0.0, silence_seconds - self._margin_seconds)

    def heard(self, now: float) -> None:
        """Bytes of any kind have arrived."""
        self._last_heard = now
        self._pulses = 0

    def pulse(self, now: float) -> bool:
        """Called at a steady rate, with the sockets read in between. True: it is gone."""
        self._pulses += 1
        silent_seconds = now - self._last_heard
        return self._pulses >= self._pulses_max and silent_seconds >= self._silence_seconds

    def ping(self, now: float) -> int:
        """The stamp of a ping that leaves now."""
        self._last_stamp = int(now * _STAMPS_PER_SECOND)
        return self._last_stamp

    def pong(self, stamp: int, now: float) -> None:
        """The ping of that stamp was answered."""
        if stamp > self._last_stamp:
            raise ProtocolError("the answer to a ping that was never sent")
        sent = stamp / _STAMPS_PER_SECOND
        self.lease_until = max(self.lease_until, sent + self._lease_seconds)
        self.round_trip_seconds = max(0.0, now - sent)
