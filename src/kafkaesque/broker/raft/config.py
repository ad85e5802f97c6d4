"""Settings of the rules, checked at construction. All times are in ticks of the driver."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.limits import MIB


@dataclass(frozen=True, slots=True)
class RaftConfig:
    election_timeout_ticks: int = 10
    """A follower that hears no leader for this long, plus a random time up to as much again, starts
    an election; a leader that hears no majority for this long steps down. Must cover a lost
    heartbeat and a sync on the slowest disk that should not cause an election."""

    heartbeat_ticks: int = 2
    """The interval of heartbeats. Also how long a lost Append can go unnoticed."""

    append_bytes_max: int = MIB
    """Size of the entries in one Append; a larger entry is sent alone."""

    inflight_messages_max: int = 64
    """Appends in flight to one follower. With `append_bytes_max` and the round trip this bounds a
    follower's throughput: 64 messages of 1 MiB at 10 ms are 6.4 GiB/s."""

    inflight_bytes_max: int = 16 * MIB
    """Bytes in flight to one follower: the memory that it can make the leader hold."""

    uncommitted_bytes_max: int = 64 * MIB
    """Proposed and not yet committed. Beyond it `propose` refuses, so that a leader without a
    majority does not grow without bound. One proposal is always accepted if nothing is pending."""

    reads_max: int = 10_000
    """Reads waiting for a majority; beyond it `read_index` refuses."""

    lease_reads: bool = False
    """Serve reads without a round of heartbeats while a majority answered recently. Relies on
    ticks of equal length within `lease_margin_ticks` (docs/RAFT.md, Leases). Must be the same on
    every node: with it a restarted node grants no vote for an election timeout."""

    lease_margin_ticks: int = 2
    """How far the ticks of two nodes may drift apart within one election timeout."""

    quiesce_after_ticks: int = 0
    """A leader that is idle for this long quiesces the group; 0 means never."""

    commit_broadcast: bool = False
    """Send each new commit index to followers at once, instead of with the next Append or
    heartbeat: for groups whose followers use their state, such as the controller's."""

    promotion_lag_entries_max: int = 1000
    """A learner may become a voter when it lags by at most this many entries."""

    snapshot_resend_ticks: int = 100
    """A snapshot that is neither acknowledged nor reported lost for this long is sent again."""

    def __post_init__(self) -> None:
        for name in ("heartbeat_ticks", "append_bytes_max", "inflight_messages_max", "reads_max"):
            if getattr(self, name) < 1:
                raise InvalidConfig(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.election_timeout_ticks < 2 * self.heartbeat_ticks:
            raise InvalidConfig(
                f"election_timeout_ticks {self.election_timeout_ticks} leaves no room for a lost "
                f"heartbeat every {self.heartbeat_ticks}"
            )
        if self.lease_reads and self.lease_ticks < self.heartbeat_ticks:
            raise InvalidConfig(
                f"a lease of {self.lease_ticks} ticks ends before the next heartbeat; raise "
                "election_timeout_ticks or lower lease_margin_ticks"
            )
        if self.append_bytes_max > self.inflight_bytes_max:
            raise InvalidConfig("append_bytes_max is above inflight_bytes_max")
        if 0 < self.quiesce_after_ticks < self.heartbeat_ticks:
            raise InvalidConfig("quiesce_after_ticks is below heartbeat_ticks")

    @property
    def lease_ticks(self) -> int:
        """How long a lease lasts from the sending of a heartbeat that a majority answered.

        A follower that counts to n has waited between n - 1 and n ticks of time; so has the
        leader. Hence one tick less for each, and the drift.
        """
        return self.election_timeout_ticks - 2 - self.lease_margin_ticks
