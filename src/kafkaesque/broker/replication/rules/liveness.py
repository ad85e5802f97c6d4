"""Whether the other end of a link is still there, and how long it will think so of us. No I/O.

Silence is counted in pulses of our own process as well as in time. Between two pulses the event
loop has looked at every socket, so a process that was stopped, or busy for long, calls nobody
silent before it has read what arrived meanwhile.

A lease counts from a ping only as far as the other side heard the groups that we lead: whoever answers
a ping elects nobody else for a while since the last *heartbeat* before it, and heartbeats are due by
ticks. So a ping counts from at most `speech_seconds` after everyone had last been spoken to, however
busy this process was in between, and whatever of it found no room in the queue.
"""

from __future__ import annotations

from math import ceil, inf

from kafkaesque.model.errors import ProtocolError

_STAMPS_PER_SECOND = 1_000_000


class Liveness:
    """One link's. All times are seconds on our own monotonic clock."""

    __slots__ = (
        "_dropped_at",
        "_gap_since",
        "_last_heard",
        "_last_ping",
        "_last_stamp",
        "_lease_seconds",
        "_margin_seconds",
        "_pulses",
        "_pulses_max",
        "_silence_seconds",
        "_speech_seconds",
        "lease_until",
        "round_trip_seconds",
    )

    def __init__(
        self,
        now: float,
        silence_seconds: float,
        pulse_seconds: float,
        margin_seconds: float,
        speech_seconds: float,
    ) -> None:
        self._silence_seconds = silence_seconds
        self._speech_seconds = speech_seconds
        self._margin_seconds = margin_seconds
        self._lease_seconds = 0.0
        # The first pulse may come at once after we heard something.
        self._pulses_max = ceil(silence_seconds / pulse_seconds) + 1
        self._pulses = 0
        self._last_heard = now
        self._last_stamp = 0
        self._last_ping = now
        self._dropped_at = -inf
        self._gap_since = inf
        """Messages were dropped and not all is said again: pings count from here at most."""
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

    def ping(self, now: float, spoke_at: float = inf) -> int:
        """The stamp of a ping that is said now: the time from which its answer gives a lease. Every
        group that we lead has spoken to its members since `spoke_at`."""
        if spoke_at > self._dropped_at:
            self._gap_since = inf
        self._last_ping = now
        since = min(self._counts_from(now, spoke_at), self._gap_since)
        self._last_stamp = max(self._last_stamp, int(since * _STAMPS_PER_SECOND))
        return self._last_stamp

    def dropped(self, now: float, spoke_at: float = inf) -> None:
        """Something that was to be sent found no room: perhaps a heartbeat. Until everyone has been
        spoken to again, nothing counts from later than it would have a moment ago."""
        self._gap_since = min(self._gap_since, self._counts_from(now, spoke_at))
        self._dropped_at = now

    def _counts_from(self, now: float, spoke_at: float) -> float:
        return min(now, spoke_at + self._speech_seconds)

    def pong(self, stamp: int, now: float) -> None:
        """The ping of that stamp was answered."""
        if stamp > self._last_stamp:
            raise ProtocolError("the answer to a ping that was never sent")
        since = stamp / _STAMPS_PER_SECOND
        self.lease_until = max(self.lease_until, since + self._lease_seconds)
        sent = self._last_ping if stamp == self._last_stamp else since
        self.round_trip_seconds = max(0.0, now - sent)
