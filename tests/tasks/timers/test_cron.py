from __future__ import annotations

from datetime import UTC, datetime

import pytest

from kafkaesque.events.tasks import CronRule
from kafkaesque.tasks.errors import TaskRefused
from kafkaesque.tasks.timers.cron import MISSED_MAX, check_rule, due_times, next_ms


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def test_the_next_time_is_by_the_zone_and_its_summer_time() -> None:
    rule = CronRule("30 2 * * *", "Europe/Berlin")
    assert next_ms(rule, ms("2026-01-10T12:00")) == ms("2026-01-11T01:30")
    assert next_ms(rule, ms("2026-07-10T12:00")) == ms("2026-07-11T00:30")


@pytest.mark.parametrize(
    ("misfire", "late_minutes", "expected"),
    [
        ("once", 0, ["10:00"]),
        ("skip", 0, ["10:00"]),
        ("all", 0, ["10:00"]),
        ("once", 185, ["13:00"]),
        ("skip", 185, []),
        ("skip", 180, ["13:00"]),
        ("all", 185, ["10:00", "11:00", "12:00", "13:00"]),
    ],
)
def test_missed_times_are_handled_as_declared(
    misfire: str, late_minutes: int, expected: list[str]
) -> None:
    due = ms("2026-03-01T10:00")
    times = due_times(CronRule("0 * * * *", misfire=misfire), due, due + late_minutes * 60_000)
    assert times == [ms(f"2026-03-01T{text}") for text in expected]


def test_a_clock_that_jumped_a_year_fires_a_bounded_number() -> None:
    due = ms("2026-03-01T10:00")
    times = due_times(CronRule("* * * * *", misfire="all"), due, due + 365 * 86_400_000)
    assert len(times) == MISSED_MAX
    assert times[-1] == due + 365 * 86_400_000


@pytest.mark.parametrize(
    "rule",
    [CronRule("* * *"), CronRule("61 * * * *"), CronRule("0 0 * * *", "Mars/Olympus"),
     CronRule("0 0 30 2 *"), CronRule("0 0 * * *", misfire="maybe")],
)  # fmt: skip
def test_an_invalid_rule_is_refused(rule: CronRule) -> None:
    with pytest.raises(TaskRefused):
        check_rule(rule)
