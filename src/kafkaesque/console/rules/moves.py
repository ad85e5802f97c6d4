"""Where a consumer group's offsets would go: the plan of a reset, shown before it is carried out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.console.rules.view import Document
from kafkaesque.console.rules.view import PartitionKey as Place


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a partition holds: start <= end. `at_time` is the first offset at or after a time asked
    for, None when every record is older."""

    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """`kind` is oldest, newest, offset, time or shift; `number` an offset, milliseconds, or by how
    much to shift."""

    kind: str
    number: int = 0


@dataclass(frozen=True, slots=True)
class Move:
    topic: str
    partition: int
    current: int | None
    new: int
    end: int

    def document(self) -> Document:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "current": self.current,
            "new": self.new,
            "change": None if self.current is None else self.new - self.current,
            "lag": self.end - self.new,
        }


class InvalidTarget(Exception):
    """The text names no place to move to."""


def read_target(text: str) -> Target:
    """`oldest`, `newest`, `offset:42`, `shift:-10`, `time:MILLISECONDS`; times are read before."""
    kind, _, rest = text.strip().partition(":")
    if kind in ("oldest", "newest") and not rest:
        return Target(kind)
    digits = rest[1:] if rest[:1] == "-" and kind == "shift" else rest
    if kind in ("offset", "shift", "time") and digits.isdecimal() and len(digits) <= 18:
        return Target(kind, int(rest))
    raise InvalidTarget("to is oldest, newest, offset:N, shift:N or time:ISO")


def plan_moves(
    committed: Mapping[Place, int], bounds: Mapping[Place, Bounds], target: Target
) -> list[Move]:
    """Every new offset lies within what the partition holds. A shift has no meaning where nothing
    is committed, so such partitions stay out of it."""
    moves = []
    for place in sorted(bounds):
        here, current = bounds[place], committed.get(place)
        match target.kind:
            case "oldest":
                new = here.start
            case "newest":
                new = here.end
            case "offset":
                new = target.number
            case "time":
                new = here.end if here.at_time is None else here.at_time
            case _:
                if current is None:
                    continue
                new = current + target.number
        moves.append(Move(*place, current, max(here.start, min(new, here.end)), here.end))
    return moves
