from __future__ import annotations

from kafkaesque.broker.groups.config import GroupConfig
from kafkaesque.broker.groups.group import Group
from kafkaesque.broker.groups.step import GroupTimers, Step, TimerKey, TimerKind
from kafkaesque.broker.groups.timers import Timers
from kafkaesque.broker.groups.types import NOTHING, GroupAnswer, HeartbeatAnswer
from kafkaesque.model.clock import Moment
from kafkaesque.model.ids import TimestampMs

NOW = Moment(100.0, TimestampMs(5))
VALUE = HeartbeatAnswer()


def step(waiting: set[int] | None = None, timers: GroupTimers | None = None) -> Step:
    timers = Timers() if timers is None else timers
    return Step(GroupConfig(), NOW, timers, set() if waiting is None else waiting)


def test_parked_token_is_answered_once() -> None:
    waiting: set[int] = set()
    step(waiting).park(7)
    later = step(waiting)
    later.answer_parked(7, VALUE)
    later.answer_parked(7, VALUE)
    assert later.effects().answers == (GroupAnswer(7, VALUE),)


def test_cancelled_token_is_not_answered() -> None:
    waiting: set[int] = set()
    step(waiting).park(7)
    waiting.discard(7)
    later = step(waiting)
    later.answer_parked(7, VALUE)
    later.answer_parked(None, VALUE)
    assert later.effects() is NOTHING


def test_timers_are_keyed_by_group_kind_and_member() -> None:
    timers: GroupTimers = Timers()
    made = step(timers=timers)
    group = Group("g")
    made.start_timer(group, TimerKind.SESSION, 1500, "a")
    made.start_timer(group, TimerKind.SESSION, 1000, "b")
    made.start_timer(group, TimerKind.JOIN, 500)
    made.cancel_timer(group, TimerKind.JOIN)
    assert timers.next_deadline() == 101.0
    assert timers.pop_due(102.0) == TimerKey("g", TimerKind.SESSION, "b")
