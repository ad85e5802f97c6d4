"""Time series in ring buffers: averages, order, wrap-around, bounds."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.console.rules.history import EVICT_AFTER_S, MetricHistory, Point, RingBuffer


def test_values_of_one_slot_are_averaged() -> None:
    ring = RingBuffer(10, 5)
    for value in (1.0, 2.0, 6.0):
        ring.add(100, value)
    assert list(ring.points()) == [Point(100, 3.0)]


def test_a_value_older_than_the_newest_slot_is_dropped() -> None:
    ring = RingBuffer(1, 5)
    ring.add(10, 1.0)
    ring.add(9, 7.0)
    assert list(ring.points()) == [Point(10, 1.0)]


def test_a_gap_longer_than_the_ring_buffer_empties_it() -> None:
    ring = RingBuffer(1, 5)
    for second in range(5):
        ring.add(second, float(second))
    ring.add(1000, 9.0)
    assert list(ring.points()) == [Point(1000, 9.0)]


@settings(deadline=None, max_examples=60)
@given(
    slots=st.integers(2, 300),
    steps=st.lists(st.integers(0, 40), min_size=1, max_size=400),
)
def test_a_ring_buffer_keeps_the_newest_values_in_order(slots: int, steps: list[int]) -> None:
    ring = RingBuffer(1, slots)
    model: dict[int, list[float]] = {}
    now = 1000
    for number, step in enumerate(steps):
        now += step
        ring.add(now, float(number))
        model.setdefault(now, []).append(float(number))
    wanted = [(at, sum(v) / len(v)) for at, v in sorted(model.items()) if at > now - slots]
    got = list(ring.points())
    assert [point.at_s for point in got] == [at for at, _ in wanted]
    assert all(
        abs(point.value - value) < 1e-6 for point, (_, value) in zip(got, wanted, strict=True)
    )


def test_a_wide_window_uses_the_coarse_resolution() -> None:
    history = MetricHistory()
    for second in range(1200):
        history.add(second, {"a": 1.0})
    assert len(history.points("a", 600, 1199)) == 600
    assert len(history.points("a", 3600, 1199)) == 120


def test_series_without_new_values_are_evicted() -> None:
    history = MetricHistory(series_max=2)
    history.add(0, {"old": 1.0, "kept": 1.0})
    history.add(1, {"refused": 1.0})
    assert history.names() == ["kept", "old"]
    history.add(EVICT_AFTER_S, {"kept": 2.0})
    history.add(EVICT_AFTER_S + 1, {"new": 1.0})
    assert history.names() == ["kept", "new"]
    assert history.latest("kept") == 2.0
    assert history.latest("nobody") is None
