"""The order of measurements, and the CPU cost of each."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kafkaesque.lab.bench.peers import Peer, PeerOptions
from kafkaesque.lab.bench.report import BenchmarkReport
from kafkaesque.lab.bench.rounds import (
    Cost,
    Metered,
    note_other_load,
    round_robin,
    throughput_figures,
)


class ThisProcess(Peer):
    """A peer that is already running: the test itself."""

    def __init__(self, name: str) -> None:
        super().__init__(PeerOptions(Path("/nowhere")))
        self.name = name

    def start(self) -> None: ...

    def stop(self) -> None: ...

    @property
    def pids(self) -> Sequence[int]:
        return [os.getpid()]

    @property
    def described(self) -> str:
        return "this"


def test_each_peer_has_one_turn_a_round_and_none_always_begins() -> None:
    peers = [ThisProcess(name) for name in ("ours", "floor", "kafka")]
    order = [(index, peer.name) for index, peer in round_robin(peers, 3)]
    assert order == [
        (0, "ours"), (0, "floor"), (0, "kafka"),
        (1, "floor"), (1, "kafka"), (1, "ours"),
        (2, "kafka"), (2, "ours"), (2, "floor"),
    ]  # fmt: skip


def test_meter_counts_the_servers_own_cpu() -> None:
    with Metered(ThisProcess("ours")) as cost:
        total = 0
        while cost.server_cpu_s == 0 and total < 3_000_000:
            total += 1
    assert cost.server_cpu_s > 0
    assert cost.elapsed_s > 0


def test_others_share_excludes_server_and_generator() -> None:
    cost = Cost(server_cpu_s=1.0, machine_busy_s=3.5, elapsed_s=2.0)
    assert cost.others_share(generator_cpu_s=0.5, cores=2) == 0.5
    assert cost.others_share(generator_cpu_s=9.0, cores=2) == 0.0


def test_throughput_figures_have_units_in_their_names() -> None:
    load = {
        "records": 1000,
        "size_bytes": 2e9,
        "elapsed_s": 2.0,
        "cpu_s": 1.0,
        "process_cpu_s": 1.2,
    }
    figures = throughput_figures(load, Cost(server_cpu_s=3.0, machine_busy_s=4.2, elapsed_s=2.5))
    assert figures["records_per_s"] == 500
    assert figures["mb_per_s"] == 1000
    assert figures["server_cpu_s_per_gb"] == 1.5
    assert figures["generator_cpu_cores"] == 0.5


@pytest.mark.parametrize(("share", "notes"), [(0.05, 0), (0.5, 1)])
def test_busy_other_processes_are_noted(share: float, notes: int) -> None:
    report = BenchmarkReport("produce", {})
    report.case("raw").add("ours", {"strangers_cpu_share": share})
    note_other_load(report, report.cases)
    assert len(report.notes) == notes
