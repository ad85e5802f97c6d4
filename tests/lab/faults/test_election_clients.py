"""Checks find two clients that lead or hold a lock at once, and any that does so without a quorum."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from kafkaesque.lab.faults.election_clients import HeldSpan, RunningClient, held_during, overlaps


def spans(*rows: tuple[str, int, int]) -> list[HeldSpan]:
    return [HeldSpan(who, begun * 1_000_000, ended * 1_000_000) for who, begun, ended in rows]


@pytest.mark.parametrize(
    ("history", "found"),
    [
        pytest.param([("a", 0, 5), ("b", 5, 9), ("a", 12, 13)], [], id="one after the other"),
        pytest.param(
            [("a", 0, 5), ("b", 3, 9)], ["a and b both had it for 2.0 ms"], id="at the end"
        ),
        pytest.param(
            [("a", 0, 50), ("b", 3, 9), ("c", 20, 30)],
            ["a and b both had it for 6.0 ms", "a and c both had it for 10.0 ms"],
            id="within a longer one",
        ),
    ],
)
def test_two_holders_at_once_are_found(
    history: list[tuple[str, int, int]], found: list[str]
) -> None:
    assert overlaps(spans(*history)) == found


@pytest.mark.parametrize(
    ("history", "found"),
    [
        pytest.param([("a", 0, 10), ("b", 20, 25)], [], id="before and after"),
        pytest.param([("a", 5, 12)], ["a had it for 2.0 ms without a quorum"], id="not given up"),
        pytest.param([("b", 15, 18)], ["b had it for 3.0 ms without a quorum"], id="taken"),
    ],
)
def test_holder_without_a_quorum_is_found(
    history: list[tuple[str, int, int]], found: list[str]
) -> None:
    outages = spans(("", 10, 20), ("", 90, 99))
    assert held_during(spans(*history), outages) == found


def test_open_span_ends_with_its_process() -> None:
    def change(what: str, has: bool, at_ns: int) -> dict[str, Any]:
        return {"what": what, "has": has, "at_ns": at_ns, "server": "h:1"}

    with subprocess.Popen(["true"]) as process:
        client = RunningClient("a", process)
    client.changes += [
        change("lock", True, 10),
        change("lead", True, 12),
        change("lock", False, 20),
        change("lock", True, 30),
    ]
    assert client.spans("lock", 35) == [HeldSpan("a", 10, 20), HeldSpan("a", 30, 35)]
    assert client.spans("lead", 35) == [HeldSpan("a", 12, 35)]
    assert client.has_since("lead") == change("lead", True, 12)
    client.changes.append(change("lead", False, 40))
    assert client.has_since("lead") is None
