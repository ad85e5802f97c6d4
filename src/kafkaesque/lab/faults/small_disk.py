"""A disk that can be filled: a tmpfs that shrinks and grows."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_ROOMY: Final = "1g"
_PAGE_KIB: Final = 4
_FILL_TRIES: Final = 100


def impossible() -> str | None:
    """The reason why no tmpfs can be mounted here; None if one can."""
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
def small_disk(place: Path) -> Iterator[None]:
    """Mounts a tmpfs at `place` for the time of the `with`."""
    place.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOMY}", "tmpfs", str(place)]
    subprocess.run(command, check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(place: Path) -> None:
    """Shrink the file system to its used size; retry, because the broker keeps writing."""
    for spare_kib in range(0, _PAGE_KIB * _FILL_TRIES, _PAGE_KIB):
        facts = os.statvfs(place)
        used_kib = (facts.f_blocks - facts.f_bfree) * facts.f_frsize // 1024
        if _resize(place, f"{used_kib + spare_kib}k", check=False):
            return
    raise OSError(f"{place} could not be made full")


def make_room(place: Path) -> None:
    _resize(place, _ROOMY)


def _resize(place: Path, size: str, *, check: bool = True) -> bool:
    command = ["mount", "-o", f"remount,size={size}", str(place)]
    return subprocess.run(command, check=check, capture_output=not check).returncode == 0
