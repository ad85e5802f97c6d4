"""Settings of the rules, checked when made. All times are ticks; how long one is, the driver says."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.limits import MIB


@dataclass(frozen=True, slots=True)
class RaftConfig:
    election_timeout_ticks: int = 10
    """A follower that hears no leader for so long, plus up to as much again by chance, asks for
    an election; a leader that hears no majority for so long gives up. Long enough for a heartbeat
    to be lost and for a sync on the slowest disk that should not cost an election."""

    heartbeat_ticks: int = 2
    """A leader speaks at least so often. Also how long a lost append stays unnoticed."""

    append_bytes_max: int = MIB
    """Entries in one Append; a larger entry goes alone."""

    inflight_messages_max: int = 64
    """Appends on their way to one follower. With `append_bytes_max` and the round trip it bounds
    a follower's throughput: 64 messages of 1 MiB at 10 ms are 6.4 GiB/s."""

    inflight_bytes_max: int = 16 * MIB
    """Bytes on their way to one follower: what it can make the leader keep for it."""

    uncommitted_bytes_max: int = 64 * MIB
    """Proposed and not yet committed; beyond it `propose` refuses, so that a leader without a
    majority does not grow without bound. One proposal always passes an empty log."""

    reads_max: int = 10_000
    """Reads waiting for a majority; beyond it `read_index` refuses."""

    lease_reads: bool = False
    """Serve reads without a round of heartbeats while a majority answered recently. Rests on
    ticks of equal length within `lease_margin_ticks` (docs/RAFT.md, Leases). Must be the same on
    every node: with it a restarted node grants no vote for an election timeout."""

    lease_margin_ticks: int = 2
    """How far the ticks of two nodes may drift apart within one election timeout."""

    quiesce_after_ticks: int = 0
    """A leader with nothing to do for so long lets the group sleep; 0 means never."""

    commit_broadcast: bool = False
    """Tell followers of each commit at once, instead of with the next append or heartbeat: for
    groups whose followers' state is used at once, such as the controller's."""

    promotion_lag_entries_max: int = 1000
    """A learner may become a voter when it lacks at most so many entries."""

    snapshot_resend_ticks: int = 100
    """A snapshot that was neither acknowledged nor reported lost for so long is sent again."""

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
        """How long after sending a heartbeat that a majority answered the leader may rely on it.

        A follower that counts to n has waited between n - 1 and n ticks of time; so has the
        leader. Hence one tick off for each, and the drift.
        """
        return self.election_timeout_ticks - 2 - self.lease_margin_ticks
