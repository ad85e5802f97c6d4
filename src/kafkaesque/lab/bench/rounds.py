"""The order of measurements: round robin over the peers, with the CPU used by each.

Measures the CPU of the server before and after, and reports when other processes were busy at the same
time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kafkaesque.lab.bench.peers import Peer
from kafkaesque.lab.bench.report import BenchmarkReport, Case
from kafkaesque.lab.harness.proc import BUSY_SHARE_WARN, machine_cpu, machine_facts

GB = 1e9

P = TypeVar("P", bound=Peer)


@dataclass(frozen=True, slots=True)
class BenchmarkOptions:
    """The options of the command line. A benchmark shrinks its workload when `quick`."""

    peers: tuple[str, ...]
    rounds: int
    quick: bool
    directory: Path
    loop: str = "uvloop"
    size_mib: int = 0
    """The size of the data with which a recovery is measured; 0: the default of the benchmark."""
    say: Callable[[str], None] = field(default=lambda text: None)

    def pick(self, full: int, quick: int) -> int:
        return quick if self.quick else full


def new_report(
    name: str, options: BenchmarkOptions, settings: Mapping[str, object]
) -> BenchmarkReport:
    """A report with the facts about the machine, and a warning if it is too busy to measure."""
    before = machine_cpu()
    time.sleep(0.5)
    busy_share = machine_cpu().busy_share_since(before)
    report = BenchmarkReport(name, {"rounds": options.rounds, "quick": options.quick, **settings})
    report.machine = machine_facts() | {"busy_share_before": round(busy_share, 2)}
    options.say(f"{name}: load average {os.getloadavg()[0]:.2f}, {busy_share:.0%} busy before")
    if busy_share > BUSY_SHARE_WARN:
        text = f"the machine was {busy_share:.0%} busy before the run: trust ratios, not figures"
        report.notes.append(text)
        options.say(f"warning: {text}")
    return report


def round_robin(peers: Sequence[P], rounds: int) -> Iterator[tuple[int, P]]:
    """Each peer once per round; every round starts with another one, so that none always follows the same."""
    for round_index in range(rounds):
        shift = round_index % len(peers) if peers else 0
        for peer in [*peers[shift:], *peers[:shift]]:
            yield round_index, peer


@dataclass(slots=True)
class Cost:
    """CPU used during one measurement, by the server and by the whole machine."""

    server_cpu_s: float = 0.0
    machine_busy_s: float = 0.0
    elapsed_s: float = 0.0

    def others_share(self, generator_cpu_s: float, cores: int) -> float:
        """The share of the machine that processes other than server and generator used."""
        other_s = self.machine_busy_s - self.server_cpu_s - generator_cpu_s
        return max(0.0, other_s / (self.elapsed_s * cores)) if self.elapsed_s else 0.0


class Metered:
    """Measures the cost of a `with` block; `cost` is complete at its end."""

    def __init__(self, peer: Peer) -> None:
        self.cost = Cost()
        self._peer = peer

    def __enter__(self) -> Cost:
        self._server_s = self._peer.cpu_seconds()
        self._machine = machine_cpu()
        self._started = time.perf_counter()
        return self.cost

    def __exit__(self, *_: object) -> None:
        self.cost.elapsed_s = time.perf_counter() - self._started
        self.cost.server_cpu_s = self._peer.cpu_seconds() - self._server_s
        self.cost.machine_busy_s = machine_cpu().busy_s - self._machine.busy_s


def throughput_figures(load: Mapping[str, float], cost: Cost) -> dict[str, float]:
    """The figures of every throughput case, from the load's own figures and the server's cost."""
    elapsed_s, size_bytes = load["elapsed_s"], load["size_bytes"]
    return {
        "records_per_s": load["records"] / elapsed_s,
        "mb_per_s": size_bytes / elapsed_s / 1e6,
        "server_cpu_s_per_gb": cost.server_cpu_s / (size_bytes / GB),
        "server_cpu_cores": cost.server_cpu_s / elapsed_s,
        "generator_cpu_cores": load["cpu_s"] / elapsed_s,
        "strangers_cpu_share": cost.others_share(load["process_cpu_s"], os.cpu_count() or 1),
    }


def note_other_load(report: BenchmarkReport, cases: Sequence[Case]) -> None:
    """Add a note if other processes used the machine during a measurement."""
    shares = [
        figures.get("strangers_cpu_share", 0.0)
        for case in cases
        for rounds in case.rounds.values()
        for figures in rounds
    ]
    if shares and max(shares) > BUSY_SHARE_WARN:
        report.notes.append(
            f"other processes used up to {max(shares):.0%} of the machine during a measurement"
        )
