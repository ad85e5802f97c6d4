"""How long retry loops wait. (That brokers redial is tested with the links.)"""

from __future__ import annotations

from random import Random

from kafkaesque.model.backoff import Backoff, backoff_s


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(0.5, 3.0)

    assert [backoff.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_many_failures_do_not_overflow() -> None:
    assert backoff_s(100_000, 0.5, 15.0) == 15.0


def test_jitter_makes_every_wait_different() -> None:
    random = Random(1)
    backoff = Backoff(0.05, 1.0, lambda: random.uniform(0.5, 1.0))
    waits = [backoff.next_s() for _ in range(40)]

    for wait, longest in zip(waits, [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 35], strict=True):
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) == len(waits)


def test_after_a_reset_the_next_wait_is_the_first_one() -> None:
    random = Random(1)
    backoff = Backoff(0.05, 1.0, lambda: random.uniform(0.5, 1.0))
    for _ in range(10):
        backoff.next_s()
    backoff.reset()

    assert backoff.next_s() <= 0.05
