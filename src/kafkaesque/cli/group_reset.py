"""Where a consumer group's offsets would go: the plan of `group reset`. Pure; no client library."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafkaesque.cli.offset_spec import Bounds, OffsetSpec, resolve

Partition = tuple[str, int]


@dataclass(frozen=True)
class Move:
    """One partition's change. `current` is None when nothing is committed."""

    topic: str
    partition: int
    current: int | None
    new: int
    end: int

    def row(self) -> dict[str, Any]:
        change = None if self.current is None else self.new - self.current
        return {
            "topic": self.topic,
            "partition": self.partition,
            "current": self.current,
            "new": self.new,
            "change": change,
            "lag": self.end - self.new,
        }


def parse_target(text: str) -> tuple[str, list[int]]:
    """`orders` or `orders:0,2` to a topic and its partitions (none: all). Raises ValueError."""
    topic, colon, numbers = text.rpartition(":")
    if not colon:
        return text, []
    parts = numbers.split(",")
    if not topic or not all(part.isdecimal() for part in parts):
        raise ValueError(f"'{text}' is not TOPIC or TOPIC:PARTITION,...")
    return topic, [int(part) for part in parts]


def plan_moves(
    partitions: Iterable[Partition],
    committed: Mapping[Partition, int],
    bounds: Mapping[Partition, Bounds],
    target: OffsetSpec | int,
) -> list[Move]:
    """The moves to a place in the log, or by a shift when `target` is a number.

    Every new offset lies within what the partition holds. A shift has no meaning where nothing is
    committed, so such partitions stay out of it.
    """
    moves = []
    for partition in sorted(partitions):
        here = bounds[partition]
        current = committed.get(partition)
        if isinstance(target, OffsetSpec):
            new = resolve(target, here)
        elif current is not None:
            new = max(here.earliest, min(current + target, here.end))
        else:
            continue
        moves.append(Move(*partition, current, new, here.end))
    return moves
