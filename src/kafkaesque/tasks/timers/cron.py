"""When a cron rule is due, and what happens to times that were missed."""

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
    from kafkaesque.tasks.rules.task import DeclaredTask

MISFIRES = ("skip", "once", "all")
MISSED_MAX = 1000
"""The maximum number of missed times that `all` runs at once; older ones are skipped."""
LATE_MS = 60_000
"""A time that passed more recently than this was not missed: its owner was busy or changed."""


@dataclass(frozen=True, slots=True)
class CronEntry:
    """A cron rule and the call it makes."""

    id: str
    task: DeclaredTask
    arguments: dict[str, Any]
    rule: CronRule


def check_rule(rule: CronRule) -> None:
    """Raises TaskRefused if the rule is invalid."""
    if rule.misfire not in MISFIRES:
        raise TaskRefused(f"misfire {rule.misfire!r} is not one of {', '.join(MISFIRES)}")
    next_ms(rule, 0)


def next_ms(rule: CronRule, after_ms: int) -> int:
    """The first time of the rule after `after_ms`."""
    found = next(_times(rule, after_ms), None)
    if found is None:
        raise TaskRefused(f"cron {rule.expression!r} never occurs")
    return found


def due_times(rule: CronRule, due_ms: int, now_ms: int) -> list[int]:
    """The times to fire for, oldest first, once `due_ms` is reached. Missed times that are skipped are
    left out. They are counted backwards from now, so a clock that jumped by years costs no more."""
    count_max = MISSED_MAX if rule.misfire == "all" else 1
    times: list[int] = []
    # The times are whole seconds: one second more includes a time that is due right now.
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
        raise TaskRefused(
            f"invalid cron {rule.expression!r} in {rule.timezone!r}: {error}"
        ) from None
