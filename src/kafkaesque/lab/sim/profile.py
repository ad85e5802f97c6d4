"""The kinds and frequency of faults in a run, drawn from its seed so that runs differ in kind too."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kafkaesque.lab.sim.network import LinkQuality
from kafkaesque.lab.sim.schedule import MILLISECOND_US, random_stream

CALM: Final = LinkQuality(latency_us_max=1_500)
ROUGH: Final = LinkQuality(loss=2, repeat=2, slow=3, latency_us_max=4_000, is_ordered=False)
FOUL: Final = LinkQuality(loss=10, repeat=5, slow=15, latency_us_max=15_000, is_ordered=False)


@dataclass(frozen=True, slots=True)
class Profile:
    """`weights` are the relative frequencies of the faults; 0 means never."""

    node_count: int = 3
    partition_count: int = 2
    producers_per_partition: int = 2
    produce_interval_us: int = 60 * MILLISECOND_US
    fault_interval_us: int = 250 * MILLISECOND_US
    """Approximate time between two faults, or between the end of one and the next."""
    fault_phase_us: int = 5_000 * MILLISECOND_US
    """How long faults are injected."""
    link_quality: LinkQuality = CALM
    clock_drift_ppm_max: int = 0
    weights: dict[str, int] = field(default_factory=dict)
    quiesce_after_ticks: int = 0
    uses_codec: bool = False
    segment_bytes: int = 1_500
    transactors: int = 0
    """Number of transactional producers. If there are any, there is a coordinator's partition."""
    journal_logs_min: int = 100
    """A sync round with this many logs or more uses the sync journal; 100 means never."""
    preallocate_bytes: int = 0


_NETWORK = {"cut_one_way": 3, "cut_pair": 3, "isolate": 4, "ring": 2, "heal": 8}
_PROCESS = {"kill": 3, "power_cut": 4, "power_cut_within": 6, "kill_all": 1, "restart": 14}
_STALLS = {"pause": 4, "resume": 6, "slow_disk": 3}
_DISK = {"full": 3, "room": 6, "sync_failure": 1, "wipe": 1}
_FLIPS = {"flip_bit": 6}
_FAILING_DISKS = {"sync_failure": 8, "kill": 8, "power_cut": 4, "restart": 16}
"""Frequent enough for this sequence: a sync fails, the process dies and restarts from the page cache, and
the power is cut."""
_CLOCKS = {"jump": 3}
_OPERATOR = {"transfer": 4, "resign": 2, "remove_member": 2, "retention": 4, "save_producers": 4}


_TRANSACTIONS_EVERY: Final = 5
"""One seed in this many has transactions, which make a run slower. The seeds in `regression_seeds.txt`
that are older than the transactions have none."""
_TRANSACTORS: Final = 3


def profile_of(seed: int) -> Profile:
    """Swarm testing (Groce et al., ISSTA '12): each run leaves out some kinds of fault, since the
    presence of one may hide another."""
    random = random_stream(seed, "profile")
    weights: dict[str, int] = {}
    for family in (_NETWORK, _PROCESS, _STALLS, _DISK, _CLOCKS, _OPERATOR):
        if random.random() < 0.65:
            weights |= family
    if random.random() < 0.2:
        weights |= _FLIPS
    transactors = _TRANSACTORS if seed % _TRANSACTIONS_EVERY == _TRANSACTIONS_EVERY - 1 else 0
    if transactors:
        # The transaction checkers read committed data on the node that commits it.
        weights.pop("flip_bit", None)
    interval_ms = random.choice((60, 150, 300, 600))
    profile = Profile(
        node_count=5 if random.random() < 0.1 else 3,
        partition_count=random.choice((1, 2)),
        producers_per_partition=random.choice((1, 2)),
        produce_interval_us=random.choice((15, 40, 100)) * MILLISECOND_US,
        fault_interval_us=interval_ms * MILLISECOND_US,
        fault_phase_us=random.choice((1_500, 2_500, 4_000)) * MILLISECOND_US,
        link_quality=random.choice((CALM, CALM, ROUGH, FOUL)),
        clock_drift_ppm_max=random.choice((0, 0, 20_000)),
        weights=weights,
        quiesce_after_ticks=random.choice((0, 8)),
        uses_codec=random.random() < 0.1,
        segment_bytes=random.choice((700, 1_500, 100_000)),
        transactors=transactors,
        journal_logs_min=random.choice((1, 1, 2, 100)),
    )
    if random.random() < 0.1:
        profile = replace(profile, weights=weights | _FAILING_DISKS)
    return replace(profile, preallocate_bytes=random.choice((0, 0, 512)))
