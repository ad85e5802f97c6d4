"""Which process listens on a port of this machine, by Linux's /proc; nothing known elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

LISTEN = "0A"


def listening_inodes(table: str, port: int) -> set[str]:
    """Socket inodes that listen on `port`, from the text of /proc/net/tcp or tcp6."""
    found = set()
    for line in table.splitlines()[1:]:
        parts = line.split()
        if len(parts) < 10 or parts[3] != LISTEN:
            continue
        if int(parts[1].rpartition(":")[2], 16) == port:
            found.add(parts[9])
    return found


def process_listening_on(port: int, proc: Path = Path("/proc")) -> str | None:
    """`java, pid 4711`, or None when it is not known (another user's process, not Linux)."""
    inodes: set[str] = set()
    for name in ("net/tcp", "net/tcp6"):
        try:
            inodes |= listening_inodes((proc / name).read_text(), port)
        except OSError:
            continue
    links = {f"socket:[{inode}]" for inode in inodes}
    if not links:
        return None
    for directory in proc.glob("[0-9]*"):
        try:
            if any(_target(link) in links for link in (directory / "fd").iterdir()):
                return f"{(directory / 'comm').read_text().strip()}, pid {directory.name}"
        except OSError:
            continue
    return None


def _target(link: Path) -> str:
    try:
        return os.readlink(link)
    except OSError:
        # Closed since it was listed; the process may hold the socket by another.
        return ""
