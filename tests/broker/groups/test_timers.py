from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.groups.timers import Timers


def test_keys_come_due_in_the_order_of_their_deadlines() -> None:
    timers: Timers[str] = Timers()
    for key, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        timers.start(key, deadline)
    assert [timers.pop_due(2.5), timers.pop_due(2.5), timers.pop_due(2.5)] == ["a", "b", None]
    assert timers.next_deadline() == 3.0


def test_deadline_pushed_back_does_not_come_due_early() -> None:
    timers: Timers[str] = Timers()
    timers.start("a", 1.0)
    timers.start("a", 5.0)
    assert timers.pop_due(1.0) is None
    assert timers.next_deadline() == 5.0


def test_deadline_brought_forward_comes_due_once() -> None:
    timers: Timers[str] = Timers()
    timers.start("a", 5.0)
    timers.start("a", 1.0)
    assert timers.pop_due(9.0) == "a"
    assert timers.pop_due(9.0) is None


def test_cancelled_key_can_start_again() -> None:
    timers: Timers[str] = Timers()
    timers.start("a", 1.0)
    timers.cancel("a")
    assert timers.next_deadline() is None
    timers.start("a", 2.0)
    assert timers.pop_due(1.5) is None
    assert timers.pop_due(2.0) == "a"


def test_many_heartbeats_leave_one_entry_in_the_heap() -> None:
    timers: Timers[int] = Timers()
    for second in range(1000):
        timers.start(1, second + 45.0)
    assert len(timers._heap) == 1


def test_many_cancelled_keys_do_not_stay_in_the_heap() -> None:
    timers: Timers[int] = Timers()
    for key in range(10_000):
        timers.start(key, 300.0)
        timers.cancel(key)
    assert len(timers._heap) < 200


operations = st.lists(
    st.tuples(
        st.sampled_from(["start", "cancel", "pop"]),
        st.integers(0, 5),
        st.integers(0, 30).map(float),
    ),
    max_size=200,
)


@settings(max_examples=200, deadline=None)
@given(operations)
def test_timers_agree_with_a_plain_dict(steps: list[tuple[str, int, float]]) -> None:
    timers: Timers[int] = Timers()
    model: dict[int, float] = {}
    for what, key, number in steps:
        if what == "start":
            timers.start(key, number)
            model[key] = number
        elif what == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = timers.pop_due(number)
            if due is None:
                assert not model or min(model.values()) > number
            else:
                assert model[due] == min(model.values()) <= number
                del model[due]
        assert timers.next_deadline() == min(model.values(), default=None)
        assert len(timers) == len(model)
