"""Who had what when, and that two who had it at once are seen."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from kafkaesque.lab.faults.contest import Contestant, Span, Turn, intrusions, overlaps


def turns(*rows: tuple[str, int, int]) -> list[Turn]:
    return [Turn(who, begun * 1_000_000, ended * 1_000_000) for who, begun, ended in rows]


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
def test_two_at_once_are_seen(history: list[tuple[str, int, int]], found: list[str]) -> None:
    assert overlaps(turns(*history)) == found


@pytest.mark.parametrize(
    ("history", "found"),
    [
        pytest.param([("a", 0, 10), ("b", 20, 25)], [], id="before and after"),
        pytest.param([("a", 5, 12)], ["a had it for 2.0 ms without a quorum"], id="not given up"),
        pytest.param([("b", 15, 18)], ["b had it for 3.0 ms without a quorum"], id="taken"),
    ],
)
def test_whoever_has_it_without_a_quorum_is_seen(
    history: list[tuple[str, int, int]], found: list[str]
) -> None:
    spans = [Span(10_000_000, 20_000_000), Span(90_000_000, 99_000_000)]
    assert intrusions(turns(*history), spans) == found


def test_turn_that_is_open_ends_with_its_process() -> None:
    def change(what: str, has: bool, at_ns: int) -> dict[str, Any]:
        return {"what": what, "has": has, "at_ns": at_ns, "server": "h:1"}

    with subprocess.Popen(["true"]) as process:
        contestant = Contestant("a", process)
    contestant.changes += [
        change("lock", True, 10),
        change("lead", True, 12),
        change("lock", False, 20),
        change("lock", True, 30),
    ]
    assert contestant.turns("lock", 35) == [Turn("a", 10, 20), Turn("a", 30, 35)]
    assert contestant.turns("lead", 35) == [Turn("a", 12, 35)]
    assert contestant.has_since("lead") == change("lead", True, 12)
    contestant.changes.append(change("lead", False, 40))
    assert contestant.has_since("lead") is None
