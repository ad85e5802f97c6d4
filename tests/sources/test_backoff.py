from __future__ import annotations

import pytest

from kafkaesque.sources.rules.backoff import SCHEDULES, FailureKind, ReconnectBackoff


def waits(network: str, kind: FailureKind, count: int) -> list[float]:
    backoff = ReconnectBackoff(network)
    return [backoff.wait_s(kind, chance=0.0) for _ in range(count)]


@pytest.mark.parametrize(
    ("kind", "expected", "most"),
    [
        (FailureKind.DROPPED, [0.0, 0.25, 0.5], 16.0),
        (FailureKind.NETWORK, [0.25, 0.5, 0.75], 16.0),
        (FailureKind.HTTP, [5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 320.0], 320.0),
        (FailureKind.RATE_LIMITED, [60.0, 120.0, 240.0], 900.0),
    ],
)
def test_x_backoff_follows_its_documentation(
    kind: FailureKind, expected: list[float], most: float
) -> None:
    got = waits("x", kind, 200)
    assert got[: len(expected)] == expected
    assert max(got) == most


@pytest.mark.parametrize("network", SCHEDULES)
@pytest.mark.parametrize("kind", FailureKind)
def test_no_schedule_shrinks_or_overflows(network: str, kind: FailureKind) -> None:
    got = waits(network, kind, 3000)
    assert got == sorted(got)


def test_jitter_shortens_by_up_to_half() -> None:
    assert ReconnectBackoff("bluesky").wait_s(FailureKind.HTTP, chance=0.999999) == pytest.approx(
        0.5, rel=1e-3
    )


def test_failure_of_another_class_starts_its_own_schedule() -> None:
    backoff = ReconnectBackoff("x")
    for _ in range(5):
        backoff.wait_s(FailureKind.HTTP, 0.0)
    assert backoff.wait_s(FailureKind.NETWORK, 0.0) == 0.25
    assert backoff.wait_s(FailureKind.HTTP, 0.0) == 5.0


def test_success_restarts_the_schedule() -> None:
    backoff = ReconnectBackoff("x")
    backoff.wait_s(FailureKind.HTTP, 0.0)
    backoff.succeeded()
    assert backoff.wait_s(FailureKind.HTTP, 0.0) == 5.0


def test_longer_wait_requested_by_the_server_is_used_unscaled() -> None:
    assert (
        ReconnectBackoff("x", scale=0.01).wait_s(FailureKind.RATE_LIMITED, 0.9, asked_s=300.0)
        == 300.0
    )
    assert ReconnectBackoff("x").wait_s(FailureKind.RATE_LIMITED, 0.0, asked_s=1.0) == 60.0
