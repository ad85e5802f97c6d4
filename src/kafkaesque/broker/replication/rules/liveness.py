"""Failure detection on a link, and the lease that the peer's failure detection gives us. No I/O.

Silence is measured in pulses of our own process as well as in time. Between two pulses the event
loop has read every socket, so a process that was suspended or busy for long does not consider a
peer silent before it has read what arrived meanwhile.

A lease counts from a ping only as far as the peer has received heartbeats of the groups that we
lead: a peer that answers a ping will not vote for another leader for a while after the last
*heartbeat* before that ping, and heartbeats are sent by ticks. So a ping counts from at most
`heartbeat_age_max_seconds` after all members were last sent a heartbeat, however busy this process
was in between, and whatever was dropped because the queue was full.
"""

from __future__ import annotations

from math import ceil, inf

from kafkaesque.model.errors import ProtocolError

_STAMPS_PER_SECOND = 1_000_000


class Liveness:
    """The state of one link. All times are seconds on our own monotonic clock."""

    __slots__ = (
        "_dropped_at",
        "_gap_since",
        "_heartbeat_age_max_seconds",
        "_last_ping",
        "_last_received",
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
        self,
        now: float,
        silence_seconds: float,
        pulse_seconds: float,
        margin_seconds: float,
        heartbeat_age_max_seconds: float,
    ) -> None:
        self._silence_seconds = silence_seconds
        self._heartbeat_age_max_seconds = heartbeat_age_max_seconds
        self._margin_seconds = margin_seconds
        self._lease_seconds = 0.0
        # The first pulse may come immediately after something was received.
        self._pulses_max = ceil(silence_seconds / pulse_seconds) + 1
        self._pulses = 0
        self._last_received = now
        self._last_stamp = 0
        self._last_ping = now
        self._dropped_at = -inf
        self._gap_since = inf
        """Messages were dropped and heartbeats not all repeated: pings count from this time at
        most."""
        self.lease_until = 0.0
        """Until then the peer does not consider us silent: it answered a ping sent this long
        before, less a margin for clocks of different rate. (If the connection breaks, both ends
        notice at once, and the lease is void.)"""
        self.round_trip_seconds = 0.0
        """Measured with the last ping that was answered."""

    def promised(self, silence_seconds: float) -> None:
        """Sets the silence after which the peer considers us gone, and not before."""
        self._lease_seconds = max(0.0, silence_seconds - self._margin_seconds)

    def heard(self, now: float) -> None:
        """Records that bytes of any kind arrived."""
        self._last_received = now
        self._pulses = 0

    def pulse(self, now: float) -> bool:
        """Checks for silence. Called at a steady rate, with the sockets read in between. Returns
        True if the peer is gone."""
        self._pulses += 1
        silent_seconds = now - self._last_received
        return self._pulses >= self._pulses_max and silent_seconds >= self._silence_seconds

    def ping(self, now: float, heartbeats_since: float = inf) -> int:
        """Returns the stamp of a ping that is sent now: the time from which its answer gives a
        lease. Every group that we lead has sent heartbeats to its members since
        `heartbeats_since`."""
        if heartbeats_since > self._dropped_at:
            self._gap_since = inf
        self._last_ping = now
        since = min(self._counts_from(now, heartbeats_since), self._gap_since)
        self._last_stamp = max(self._last_stamp, int(since * _STAMPS_PER_SECOND))
        return self._last_stamp

    def dropped(self, now: float, heartbeats_since: float = inf) -> None:
        """Records that a message, perhaps a heartbeat, was dropped because the queue was full.
        Until all members have been sent heartbeats again, no ping counts from later than it would
        have now."""
        self._gap_since = min(self._gap_since, self._counts_from(now, heartbeats_since))
        self._dropped_at = now

    def _counts_from(self, now: float, heartbeats_since: float) -> float:
        return min(now, heartbeats_since + self._heartbeat_age_max_seconds)

    def pong(self, stamp: int, now: float) -> None:
        """The ping with that stamp was answered."""
        if stamp > self._last_stamp:
            raise ProtocolError("a pong for a ping that was never sent")
        since = stamp / _STAMPS_PER_SECOND
        self.lease_until = max(self.lease_until, since + self._lease_seconds)
        sent = self._last_ping if stamp == self._last_stamp else since
        self.round_trip_seconds = max(0.0, now - sent)
