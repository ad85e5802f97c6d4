from __future__ import annotations

import pytest

from kafkaesque.pipeline.rules.restarting import Restarts

TRANSIENT = "Python worker failed to connect back."


def test_waits_double_until_the_last_restart() -> None:
    restarts = Restarts(3)
    assert [restarts.wait_s(TRANSIENT, None) for _ in range(4)] == [2.0, 4.0, 8.0, None]


def test_finished_batch_resets_the_count() -> None:
    restarts = Restarts(2)
    assert [restarts.wait_s(TRANSIENT, batch) for batch in (4, 4, 5, 5, 5)] == [
        2.0,
        4.0,
        2.0,
        4.0,
        None,
    ]


def test_waits_are_bounded() -> None:
    restarts = Restarts(20)
    assert max(restarts.wait_s(TRANSIENT, None) or 0 for _ in range(20)) == 60.0


@pytest.mark.parametrize("failure", ["DataLoss: t-0 is gone", "CheckpointLost: x", "TableRefused"])
def test_permanent_failure_is_not_retried(failure: str) -> None:
    assert Restarts(5).wait_s(failure, None) is None


def test_zero_restarts_means_none() -> None:
    assert Restarts(0).wait_s(TRANSIENT, None) is None
