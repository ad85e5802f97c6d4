"""The disk is full for a while, then there is room again; sometimes the broker dies in between."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from kafkaesque.faults.stage import FaultRun, Stage
from kafkaesque.faults.target import SingleBroker, Target

_ROOMY = "1g"
_FULL_S_MIN = 0.5
_FULL_S_MAX = 3.0
_PAGE_KIB = 4
_FILL_TRIES = 100


class Run(FaultRun):
    purpose = "leave no byte free on the broker's disk for up to 3 s, then make room"
    promise = "records are refused, not lost; the broker goes on by itself when there is room"

    def impossible(self) -> str | None:
        if os.geteuid() != 0:
            return "it needs root to mount a small tmpfs"
        done = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/mnt"],
            capture_output=True,
            text=True,
            check=False,
        )
        return None if done.returncode == 0 else f"no tmpfs may be mounted: {done.stderr.strip()}"

    @contextmanager
    def open_target(self, directory: Path, settings: Mapping[str, object]) -> Iterator[Target]:
        data = directory / "data"
        data.mkdir(parents=True)
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_ROOMY}", "tmpfs", str(data)], check=True
        )
        try:
            with closing(SingleBroker(directory, settings)) as target:
                yield target
        finally:
            subprocess.run(["umount", "-l", str(data)], check=True)

    def inject(self, stage: Stage) -> None:
        while stage.another_round(0.5, 2.0):
            node = stage.random.choice(stage.target.nodes)
            data = stage.target.data(node)
            stage.fault(f"the disk of node {node} is full")
            _fill(data)
            stage.count("times_full")
            time.sleep(stage.random.uniform(_FULL_S_MIN, _FULL_S_MAX))
            dies = stage.random.random() < 0.3
            if dies:
                stage.say(f"kill -9 node {node} on a full disk")
                stage.target.kill(node)
                stage.count("kills_when_full")
            _resize(data, _ROOMY)
            stage.say(f"the disk of node {node} has room again")
            if dies:
                stage.target.start(node)

    def complaints(self, stage: Stage) -> list[str]:
        refused = any("No space left" in stage.target.log_text(n) for n in stage.target.nodes)
        return [] if refused else ["the broker's log never tells of a full disk"]


def _fill(place: Path) -> None:
    """Shrink the file system to what is used; the broker writes on meanwhile, so try again."""
    for spare_kib in range(0, _PAGE_KIB * _FILL_TRIES, _PAGE_KIB):
        facts = os.statvfs(place)
        used_kib = (facts.f_blocks - facts.f_bfree) * facts.f_frsize // 1024
        if _resize(place, f"{used_kib + spare_kib}k", check=False):
            return
    raise OSError(f"{place} could not be made full")


def _resize(place: Path, size: str, *, check: bool = True) -> bool:
    command = ["mount", "-o", f"remount,size={size}", str(place)]
    return subprocess.run(command, check=check, capture_output=not check).returncode == 0
