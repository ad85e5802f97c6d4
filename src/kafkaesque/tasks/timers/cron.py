"""When a cron rule is due, and what happens to times at which nothing ran. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from kafkaesque.events.tasks import CronRule
from kafkaesque.tasks.errors import TaskRefused

if TYPE_CHECKING:
    from kafkaesque.tasks.task import Declared

MISFIRES = ("skip", "once", "all")
MISSED_MAX = 1000
"""Times that `all` makes up for at once; older ones are left out."""
LATE_MS = 60_000
"""A time that passed no longer ago than this was not missed: its owner was busy or changed."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A rule and the call it makes."""

    id: str
    task: Declared
    named: dict[str, Any]
    rule: CronRule


def check_rule(rule: CronRule) -> None:
    """TaskRefused says what is wrong."""
    if rule.misfire not in MISFIRES:
        raise TaskRefused(f"misfire {rule.misfire!r} is none of {', '.join(MISFIRES)}")
    next_ms(rule, 0)


def next_ms(rule: CronRule, after_ms: int) -> int:
    """The first time after `after_ms` that the rule names."""
    found = next(_times(rule, after_ms), None)
    if found is None:
        raise TaskRefused(f"cron {rule.expression!r} names no time")
    return found


def due_times(rule: CronRule, due_ms: int, now_ms: int) -> list[int]:
    """Times to fire for now that `due_ms` has come, the oldest first; none for missed ones that are
    to be skipped. Counted back from now: a clock that jumped by years costs no more than one that
    did not."""
    count_max = MISSED_MAX if rule.misfire == "all" else 1
    times: list[int] = []
    # The rule's times are whole minutes or seconds: a second more includes one that is due right now.
    for time_ms in _times(rule, now_ms + 1000, reverse=True):
        if time_ms < due_ms or len(times) == count_max:
            break
        if time_ms <= now_ms:
            times.append(time_ms)
    times = times[::-1] or [due_ms]
    if rule.misfire == "skip" and now_ms - times[-1] > LATE_MS:
        return []
    return times


def _times(rule: CronRule, from_ms: int, *, reverse: bool = False) -> Iterator[int]:
    try:
        start = datetime.fromtimestamp(from_ms / 1000, tz=ZoneInfo(rule.timezone))
        for moment in CronSim(rule.expression, start, reverse=reverse):
            yield round(moment.astimezone(UTC).timestamp() * 1000)
    except (CronSimError, ZoneInfoNotFoundError, ValueError, OSError, OverflowError) as error:
        raise TaskRefused(f"no cron {rule.expression!r} in {rule.timezone!r}: {error}") from None
