from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaesque.broker.coordination.rules.sessions import ExpiryClock


def test_silent_session_expires_at_its_timeout_and_not_before() -> None:
    clock = ExpiryClock()
    clock.start(1, 1000, 10.0)
    assert clock.expired(10.999) == []
    assert clock.expired(11.0) == [1]


def test_touched_session_stays_alive() -> None:
    clock = ExpiryClock()
    clock.start(1, 1000, 0.0)
    for tenth in range(1, 40):
        clock.touch([1, 99], tenth / 2)
        assert clock.expired(tenth / 2) == []
    assert clock.expired(19.5 + 1.0) == [1]


def test_slack_is_added_for_sessions_touched_elsewhere() -> None:
    clock = ExpiryClock(slack_s=0.5)
    clock.start(1, 1000, 0.0)
    assert clock.expired(1.4) == []
    assert clock.expired(1.5) == [1]


def test_session_whose_end_failed_is_named_again() -> None:
    clock = ExpiryClock()
    clock.start(1, 1000, 0.0)
    assert [clock.expired(at) for at in (1.0, 1.5, 2.0)] == [[1], [], [1]]
    clock.forget(1)
    assert clock.expired(9.0) == []


def test_attached_again_with_a_shorter_timeout_counts_that() -> None:
    clock = ExpiryClock()
    clock.start(1, 10_000, 0.0)
    clock.start(1, 1000, 0.0)
    assert clock.expired(1.0) == [1]
    clock.start(1, 10_000, 1.0)
    assert clock.expired(10.9) == []
    assert clock.expired(11.0) == [1]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["start", "touch", "forget", "look"]),
        st.integers(1, 3),
        st.sampled_from([500, 1000, 4000]),
        st.sampled_from([0.0, 0.3, 1.0, 5.0]),
    ),
    max_size=60,
)


@given(STEPS)
def test_exactly_the_silent_sessions_expire(steps: list[tuple[str, int, int, float]]) -> None:
    clock = ExpiryClock()
    touched: dict[int, tuple[float, int]] = {}
    now = 0.0
    for step, session, timeout_ms, passed in steps:
        now += passed
        match step:
            case "start":
                clock.start(session, timeout_ms, now)
                touched[session] = (now, timeout_ms)
            case "touch":
                clock.touch([session], now)
                if session in touched:
                    touched[session] = (now, touched[session][1])
            case "forget":
                clock.forget(session)
                touched.pop(session, None)
            case "look":
                due = {s for s, (at, ms) in touched.items() if at + ms / 1000 <= now}
                assert set(clock.expired(now)) == due
                for session_id in due:
                    clock.forget(session_id)
                    del touched[session_id]
        assert len(clock) == len(touched)


def test_many_attachments_leave_a_small_heap() -> None:
    clock = ExpiryClock()
    now = 0.0
    for number in range(1000):
        now += 0.1
        clock.start(1, 4000 if number % 2 else 500, now)
        clock.expired(now)
    assert len(clock._heap) < 20
