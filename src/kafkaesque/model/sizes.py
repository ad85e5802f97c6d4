"""Sizes in bytes, written for people."""

from __future__ import annotations


def human_bytes(size_bytes: float) -> str:
    """`1536` as `1.5 KiB`."""
    size = float(size_bytes)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024 or unit == "TiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
