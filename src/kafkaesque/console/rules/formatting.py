"""Numbers, times and sizes formatted for people, on pages and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

NOTHING: Final = "–"
_THOUSANDS: Final = ("", "k", "M", "G", "T", "P")
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_UNITS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def count(value: float | None) -> str:
    """A whole number with thousands separators; it stays exact so that people can compare."""
    return NOTHING if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Three digits and a unit letter: 12.3k."""
    return NOTHING if value is None else _scaled(value, 1000, _THOUSANDS, "")


def size(value: float | None) -> str:
    return NOTHING if value is None else _scaled(value, 1024, _BYTES, " ")


def _scaled(value: float, base: int, units: Sequence[str], space: str) -> str:
    number = float(value)
    for unit in units:
        if abs(number) < base or unit == units[-1]:
            break
        number /= base
    digits = 0 if unit == units[0] and number == int(number) else 1 if abs(number) < 100 else 0
    return f"{number:.{digits}f}{space}{unit}".strip()


def duration(seconds: float | None) -> str:
    """At most two units: 1 h 5 min, 2.3 s, 12 ms."""
    if seconds is None:
        return NOTHING
    if seconds < 0.0005:
        return "0 s"
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    for number, (unit_s, unit) in enumerate(_UNITS[:-1]):
        if seconds >= unit_s:
            rest_s, rest_unit = _UNITS[number + 1]
            rest = int(seconds % unit_s // rest_s)
            whole = f"{int(seconds // unit_s):,} {unit}"
            return f"{whole} {rest} {rest_unit}" if rest else whole
    return f"{seconds:.0f} s"


def milliseconds(value: float | None) -> str:
    return NOTHING if value is None else duration(value / 1000)


def retention(value_ms: int | None) -> str:
    if value_ms is None:
        return NOTHING
    return "forever" if value_ms < 0 else duration(value_ms / 1000)


def clock_time(at_s: float | None) -> str:
    """Time of day in UTC; the page's script converts it to the reader's time zone."""
    if not at_s:
        return NOTHING
    return datetime.fromtimestamp(at_s, UTC).strftime("%H:%M:%S")


def iso_time(at_s: float | None) -> str:
    return "" if not at_s else datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds")


def percent(share: float | None) -> str:
    return NOTHING if share is None else f"{share:.0%}"


def spark_points(values: Sequence[float], width: int = 100, height: int = 24) -> str:
    """Points of an SVG polyline; a flat line at the bottom if there is no data."""
    if len(values) < 2:
        return f"0,{height - 1} {width},{height - 1}"
    top = max(values) or 1.0
    step = width / (len(values) - 1)
    return " ".join(
        f"{number * step:.1f},{height - 1 - (value / top) * (height - 3):.1f}"
        for number, value in enumerate(values)
    )
