"""How long a dialler waits. (That it dials is tested with the links.)"""

from __future__ import annotations

from random import Random

from kafkaesque.broker.replication.dialling import Backoff


def test_waits_double_up_to_a_bound_with_chance_in_each() -> None:
    backoff = Backoff(0.05, 1.0, Random(1))
    waits = [backoff.failed() for _ in range(40)]

    for wait, longest in zip(waits, [0.05, 0.1, 0.2, 0.4, 0.8, *[1.0] * 35], strict=True):
        assert longest / 2 <= wait <= longest
    assert len(set(waits)) == len(waits)


def test_success_makes_the_next_wait_short_again() -> None:
    backoff = Backoff(0.05, 1.0, Random(1))
    for _ in range(10):
        backoff.failed()
    backoff.reset()

    assert backoff.failed() <= 0.05
