from __future__ import annotations

import pytest

from kafkaesque.cli.group_reset import Move, parse_target, plan_moves
from kafkaesque.cli.offset_spec import Bounds, OffsetSpec

PARTITIONS = [("t", 1), ("t", 0)]
BOUNDS = {("t", 0): Bounds(5, 100), ("t", 1): Bounds(0, 50)}


def test_moving_to_a_place_covers_partitions_without_a_commit() -> None:
    moves = plan_moves(PARTITIONS, {("t", 0): 40}, BOUNDS, OffsetSpec("beginning"))
    assert moves == [Move("t", 0, 40, 5, 100), Move("t", 1, None, 0, 50)]


def test_a_shift_leaves_out_partitions_without_a_commit() -> None:
    assert plan_moves(PARTITIONS, {("t", 0): 40}, BOUNDS, -10) == [Move("t", 0, 40, 30, 100)]


@pytest.mark.parametrize(("shift", "expected"), [(-1000, 5), (1000, 100), (0, 40)])
def test_a_shift_stays_within_what_the_partition_holds(shift: int, expected: int) -> None:
    (move,) = plan_moves([("t", 0)], {("t", 0): 40}, BOUNDS, shift)
    assert move.new == expected


def test_a_row_tells_the_change_and_the_lag_that_follows() -> None:
    assert Move("t", 0, 40, 30, 100).row() == {
        "topic": "t",
        "partition": 0,
        "current": 40,
        "new": 30,
        "change": -10,
        "lag": 70,
    }
    assert Move("t", 0, None, 30, 100).row()["change"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("orders", ("orders", [])), ("orders:0", ("orders", [0])), ("a.b:1,2", ("a.b", [1, 2]))],
)
def test_a_target_names_a_topic_and_perhaps_partitions(
    text: str, expected: tuple[str, list[int]]
) -> None:
    assert parse_target(text) == expected


@pytest.mark.parametrize("text", ["orders:", "orders:x", ":1", "orders:1,"])
def test_a_bad_target_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not TOPIC"):
        parse_target(text)
