"""The benchmarks of three brokers with small workloads: they complete and report plausible figures."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from kafkaesque.lab.bench.catalog import run
from kafkaesque.lab.bench.report import BenchmarkReport, Case
from kafkaesque.lab.bench.rounds import BenchmarkOptions

pytestmark = [pytest.mark.story, pytest.mark.timeout(400)]


def quick(name: str, directory: Path) -> BenchmarkReport:
    return run(name, BenchmarkOptions(("ours",), 1, quick=True, directory=directory))


def ours(case: Case) -> dict[str, float]:
    ((figures),) = case.rounds["ours"]
    return figures


def test_idle_partitions_send_few_messages_whatever_their_number(tmp_path: Path) -> None:
    report = quick("idle-partitions", tmp_path)
    for case in report.cases:
        assert ours(case)["raft_messages_per_s"] < 200
    assert len(report.cases) == 2


def test_failover_ends_with_every_partition_acknowledging(tmp_path: Path) -> None:
    report = quick("failover", tmp_path)
    for case in report.cases:
        figures = ours(case)
        assert figures["leaderships"] == 20
        assert 0 < figures["first_ack_s"] <= figures["all_ack_s"]
        assert figures["all_led_s"] <= figures["all_ack_s"]


def test_active_partitions_are_synced_only_if_configured(tmp_path: Path) -> None:
    figures = [ours(case) for case in quick("active-partitions", tmp_path).cases]
    for synced, cached in zip(figures[:2], figures[2:], strict=True):
        assert synced["fsyncs_per_1000_records"] > 0
        assert cached["fsyncs_per_1000_records"] < synced["fsyncs_per_1000_records"]
        assert synced["p50_ms"] <= synced["p99_ms"] <= synced["max_ms"]


def test_recover_all_recovers_the_stored_data(tmp_path: Path) -> None:
    for case in quick("recover-all", tmp_path).cases:
        figures = ours(case)
        assert figures["stored_mb_per_broker"] > 16
        assert 0 < figures["first_ack_s"] <= figures["all_ack_s"]


def test_wiped_replica_recovers_all_data(tmp_path: Path) -> None:
    (case,) = quick("wiped-replica", tmp_path).cases
    assert ours(case)["recovered_mb"] > 16
    assert ours(case)["p50_ms_during"] > 0


def test_replicated_measures_both_durabilities(tmp_path: Path) -> None:
    report = quick("replicated", tmp_path)
    workloads = importlib.import_module("kafkaesque.lab.bench.suites.replicated").WORKLOADS
    assert len(report.cases) == 2 * len(workloads)
    assert all(ours(case)["mb_per_s"] > 0 for case in report.cases)


def test_sync_methods_count_rounds_of_every_method(tmp_path: Path) -> None:
    (case,) = quick("sync-methods", tmp_path).cases
    assert len(case.rounds) == 4
    assert all(figures[0]["records_per_s"] > 0 for figures in case.rounds.values())
