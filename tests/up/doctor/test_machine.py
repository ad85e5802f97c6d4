from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kafkaesque.compiled import Build
from kafkaesque.up.doctor import machine

GIB = machine.GIB


@pytest.mark.parametrize(
    ("soft", "hard", "status"),
    [
        (65536, 65536, "ok"),
        (4096, -1, "ok"),
        (-1, -1, "ok"),
        (1024, 4096, "warn"),
        (256, 256, "fail"),
    ],
)
def test_few_open_files_are_reported(soft: int, hard: int, status: str) -> None:
    finding = machine.judge_open_files(soft, hard)
    assert finding.status == status
    assert (finding.fix is None) == (status == "ok")


def test_the_fix_for_open_files_never_asks_for_more_than_the_hard_limit() -> None:
    assert machine.judge_open_files(1024, 4096).fix == "ulimit -n 4096"
    assert "hard limit" in (machine.judge_open_files(256, 256).fix or "")


@pytest.mark.parametrize(
    ("free", "total", "status"),
    [
        (50 * GIB, 100 * GIB, "ok"),
        (4 * GIB, 10 * GIB, "warn"),
        (40 * GIB, 1000 * GIB, "warn"),
        (1, 100 * GIB, "fail"),
    ],
)
def test_little_space_is_reported(free: int, total: int, status: str) -> None:
    assert machine.judge_space(Path("/d"), free, total).status == status


@pytest.mark.parametrize(
    ("times_ms", "filesystem", "status"),
    [
        ([1.0], "ext4", "ok"),
        ([50.0], "ext4", "warn"),
        ([0.001], "ext4", "warn"),
        ([0.001], "tmpfs", "ok"),
    ],
)
def test_syncs_too_slow_or_too_fast_are_reported(
    times_ms: list[float], filesystem: str, status: str
) -> None:
    assert machine.judge_syncs(Path("/d"), times_ms, filesystem).status == status


@pytest.mark.parametrize(("kind", "status"), [("ext4", "ok"), ("nfs4", "warn"), ("tmpfs", "warn")])
def test_file_systems_that_may_lose_data_are_reported(kind: str, status: str) -> None:
    assert machine.judge_filesystem(Path("/d"), kind).status == status


def test_the_deepest_mount_point_wins(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"a / ext4 rw 0 0\nb {tmp_path} xfs rw 0 0\nc /nowhere nfs rw 0 0\n")
    assert machine.filesystem_of(tmp_path / "data", mounts) == "xfs"
    assert machine.filesystem_of(Path("/"), mounts) == "ext4"
    assert machine.filesystem_of(tmp_path, tmp_path / "absent") is None


def test_a_clock_before_the_installation_fails() -> None:
    now = datetime(2020, 1, 1, tzinfo=UTC)
    assert machine.judge_clock(now, now.timestamp() + 10 * 86400).status == "fail"
    assert machine.judge_clock(now, now.timestamp()).status == "ok"


def test_a_directory_that_is_not_there_yet_is_examined_where_it_would_be(tmp_path: Path) -> None:
    findings = list(machine.examine_data(tmp_path / "a" / "b"))
    assert {f.area for f in findings} == {"data"}
    assert any("fsync" in f.text for f in findings)
    assert list(tmp_path.iterdir()) == []


def test_files_with_a_future_time_show_that_the_clock_was_set_back(tmp_path: Path) -> None:
    future = tmp_path / "segment"
    future.touch()
    os.utime(future, (4_000_000_000, 4_000_000_000))
    assert [f.status for f in machine.examine_data(tmp_path) if f.area == "clock"] == ["warn"]


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write anywhere: run as another user to see it"
)
def test_a_directory_that_cannot_be_written_fails(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    (finding,) = machine.examine_data(tmp_path / "data")
    assert finding.status == "fail"


def test_versions_name_the_client_library() -> None:
    findings = list(machine.examine_versions())
    assert all(f.status == "ok" for f in findings if "build" not in f.facts)
    assert any("librdkafka" in f.facts for f in findings)


@pytest.mark.parametrize(
    ("build", "status"),
    [(Build(True, "43 compiled modules"), "ok"), (Build(False, "sources", "make compile"), "warn")],
)
def test_broker_that_is_not_compiled_is_a_warning(build: Build, status: str) -> None:
    finding = machine.judge_build(build)
    assert finding.status == status
    assert build.text in finding.text
    assert (finding.fix or "").startswith(build.fix)
