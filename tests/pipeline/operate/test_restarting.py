from __future__ import annotations

import pytest

from kafkaesque.pipeline.operate.restarting import Restarts

PASSING = "Python worker failed to connect back."


def test_waits_grow_and_end_with_the_last_restart() -> None:
    restarts = Restarts(3)
    assert [restarts.wait_s(PASSING, None) for _ in range(4)] == [2.0, 4.0, 8.0, None]


def test_finished_batch_begins_the_row_anew() -> None:
    restarts = Restarts(2)
    assert [restarts.wait_s(PASSING, batch) for batch in (4, 4, 5, 5, 5)] == [
        2.0,
        4.0,
        2.0,
        4.0,
        None,
    ]


def test_waits_have_a_bound() -> None:
    restarts = Restarts(20)
    assert max(restarts.wait_s(PASSING, None) or 0 for _ in range(20)) == 60.0


@pytest.mark.parametrize("failure", ["DataLoss: t-0 is gone", "CheckpointLost: x", "TableRefused"])
def test_failure_that_stays_is_not_tried_again(failure: str) -> None:
    assert Restarts(5).wait_s(failure, None) is None


def test_nobody_restarts_who_was_not_asked_to() -> None:
    assert Restarts(0).wait_s(PASSING, None) is None
