"""Virtual time."""

from __future__ import annotations

import pytest

from kafkaesque.lab.sim.schedule import EVENTS_WAITING_MAX, SECOND_US, EventSchedule, NodeClock
from kafkaesque.model.errors import InvariantBroken


def test_events_run_in_order_of_time_then_of_scheduling() -> None:
    schedule, seen = EventSchedule(), []
    for delay_us, name in ((30, "late"), (10, "first"), (10, "second"), (40, "too late")):
        schedule.after(delay_us, lambda name=name: seen.append((schedule.now_us, name)))  # type: ignore[misc]
    schedule.run_until(35)
    assert seen == [(10, "first"), (10, "second"), (30, "late")]
    assert (schedule.now_us, len(schedule)) == (35, 1)


def test_event_scheduled_by_an_event_runs_in_the_same_run() -> None:
    schedule, seen = EventSchedule(), []
    schedule.after(10, lambda: schedule.after(5, lambda: seen.append(schedule.now_us)))
    schedule.run_until(15)
    assert seen == [15]


def test_events_in_the_past_or_without_bound_are_rejected() -> None:
    schedule = EventSchedule()
    with pytest.raises(InvariantBroken, match="past"):
        schedule.after(-1, lambda: None)
    for _ in range(EVENTS_WAITING_MAX):
        schedule.after(1, lambda: None)
    with pytest.raises(InvariantBroken, match="multiply"):
        schedule.after(1, lambda: None)


def test_clock_that_runs_fast_is_ahead_and_its_ticks_are_short() -> None:
    schedule = EventSchedule()
    clock = NodeClock(schedule, rate_ppm=100_000)
    before_ms = clock.wall_ms()
    schedule.run_until(10 * SECOND_US)
    assert clock.monotonic() == 11.0
    assert clock.wall_ms() - before_ms == 11_000
    assert clock.true_us(11_000) == 10_000
    clock.wall_offset_ms -= 5_000
    assert clock.wall_ms() - before_ms == 6_000
    assert clock.monotonic() == 11.0
