"""The plan of an offset reset: the new committed offset of each partition of a group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Partition = tuple[str, int]
Kind = Literal["beginning", "end", "offset", "last", "time"]


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A position in a log. `number` is the offset, the N of "last N", or milliseconds since the epoch."""

    kind: Kind
    number: int = 0


@dataclass(frozen=True, slots=True)
class Shift:
    """A move by a number of records: forward, or back if negative."""

    records: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """Offsets of a partition: earliest <= end. `at_time` is the first offset at or after the time of
    an OffsetSpec, or None if every record is older."""

    earliest: int
    end: int
    at_time: int | None = None

    def clamp(self, offset: int) -> int:
        return max(self.earliest, min(offset, self.end))


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The change of one partition. `current` is None if nothing is committed."""

    topic: str
    partition: int
    current: int | None
    new: int
    end: int

    def document(self) -> dict[str, Any]:
        """The JSON fields of the command line and of the console."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "current": self.current,
            "new": self.new,
            "change": None if self.current is None else self.new - self.current,
            "lag": self.end - self.new,
        }


def resolve(spec: OffsetSpec, bounds: Bounds) -> int:
    """The offset of `spec` in a partition, clamped to its bounds."""
    match spec.kind:
        case "beginning":
            wanted = bounds.earliest
        case "end":
            wanted = bounds.end
        case "offset":
            wanted = spec.number
        case "last":
            wanted = bounds.end - spec.number
        case "time":
            wanted = bounds.end if bounds.at_time is None else bounds.at_time
    return bounds.clamp(wanted)


def plan_reset(
    committed: Mapping[Partition, int],
    bounds: Mapping[Partition, Bounds],
    target: OffsetSpec | Shift,
) -> list[OffsetChange]:
    """The change of every partition in `bounds`, in order.

    New offsets are within the bounds of the partition. A shift skips partitions without a committed
    offset: it has nothing to start from.
    """
    changes = []
    for partition in sorted(bounds):
        here = bounds[partition]
        current = committed.get(partition)
        if isinstance(target, OffsetSpec):
            new = resolve(target, here)
        elif current is not None:
            new = here.clamp(current + target.records)
        else:
            continue
        changes.append(OffsetChange(*partition, current, new, here.end))
    return changes
