"""The preloaded C libraries; skipped if there is no compiler."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kafkaesque.lab.faults import shims
from kafkaesque.lab.faults.power import PowerJournal

pytestmark = pytest.mark.skipif(
    shims.impossible() is not None, reason=f"{shims.impossible()}: apt install gcc"
)


def run_python(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_clock_shim_shifts_only_the_wall_clock(tmp_path: Path) -> None:
    shift = tmp_path / "clock"
    shift.write_bytes(struct.pack("=q", -7200 * 10**9))
    code = f"""
import time
wall, monotonic = time.time(), time.monotonic()
with open({str(shift)!r}, "r+b") as file:
    file.write((3600 * 10**9).to_bytes(8, "little"))
print(round(time.time() - wall), round(time.monotonic() - monotonic))
"""
    environment = {"LD_PRELOAD": str(shims.build("clock", tmp_path))}
    assert run_python(code, {**environment, "KAFKAESQUE_CLOCK": str(shift)}) == "10800 0"
    # Without the file the clock is not shifted.
    assert run_python(code, environment) == "0 0"


def test_power_shim_journals_what_a_process_made_durable(tmp_path: Path) -> None:
    root = tmp_path / "data"
    root.mkdir()
    (tmp_path / "backups").mkdir()
    code = """
import os
os.chdir(os.environ["KAFKAESQUE_POWER_ROOT"])
root = os.getcwd()
def write(name, data, position=0):
    fd = os.open(f"{root}/{name}", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, data, position)
    return fd
fd = write("synced", b"12345"); os.fdatasync(fd); os.pwrite(fd, b"678", 5); os.pwrite(fd, b"x", 1)
write("unsynced", b"12345")
fd = write("a.tmp", b"new"); os.fsync(fd); os.rename(f"{root}/a.tmp", f"{root}/a")
fd = os.open(root, os.O_RDONLY); os.fsync(fd)
fd = write("b.tmp", b"new"); os.fsync(fd); os.rename(f"{root}/b.tmp", f"{root}/a")
os.unlink(f"{root}/unsynced")
fd = write("cut", b"12345"); os.fsync(fd); os.ftruncate(fd, 2)
"""
    environment = {
        "LD_PRELOAD": str(shims.build("power", tmp_path)),
        "KAFKAESQUE_POWER_ROOT": str(root),
        "KAFKAESQUE_POWER_JOURNAL": str(tmp_path / "journal"),
        "KAFKAESQUE_POWER_BACKUPS": str(tmp_path / "backups"),
    }
    run_python(code, environment)
    journal = PowerJournal({})
    for line in (tmp_path / "journal").read_text().splitlines(keepends=True):
        journal.read(line)
    lengths = {os.path.basename(path): length for path, length in journal.lengths.items()}
    assert lengths == {"synced": 5, "a": 3, "cut": 2}
    assert {os.path.basename(path) for path in journal.names} == {"synced", "unsynced", "a"}
    assert [one[1:] for one in journal.overwrites[f"{root}/synced"]] == [(1, b"2")]
    renamed, removed = journal.name_changes
    assert (renamed.old, renamed.new) == (f"{root}/b.tmp", f"{root}/a")
    assert Path(renamed.backup).read_bytes() == b"new"
    assert (removed.old, removed.new) == ("", f"{root}/unsynced")
    assert Path(removed.backup).read_bytes() == b"12345"


def test_compiler_errors_are_reported(tmp_path: Path) -> None:
    with pytest.raises(shims.ShimFailed, match="no-such"):
        shims.build("no-such", tmp_path)
