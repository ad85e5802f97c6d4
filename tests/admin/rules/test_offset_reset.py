"""Plans of offset resets."""

from __future__ import annotations

import pytest

from kafkaesque.admin.rules.offset_reset import (
    Bounds,
    OffsetChange,
    OffsetSpec,
    Shift,
    plan_reset,
    resolve,
)

BOUNDS = {("t", 1): Bounds(0, 50), ("t", 0): Bounds(5, 100)}


def test_reset_to_a_position_includes_partitions_without_a_commit() -> None:
    changes = plan_reset({("t", 0): 40}, BOUNDS, OffsetSpec("beginning"))
    assert changes == [OffsetChange("t", 0, 40, 5, 100), OffsetChange("t", 1, None, 0, 50)]


def test_shift_skips_partitions_without_a_commit() -> None:
    changes = plan_reset({("t", 0): 40}, BOUNDS, Shift(-10))
    assert changes == [OffsetChange("t", 0, 40, 30, 100)]


@pytest.mark.parametrize(("shift", "expected"), [(-1000, 5), (1000, 100), (0, 40)])
def test_shift_is_clamped_to_the_bounds(shift: int, expected: int) -> None:
    (change,) = plan_reset({("t", 0): 40}, BOUNDS, Shift(shift))
    assert change.new == expected


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (OffsetSpec("beginning"), {0: 10, 1: 0}),
        (OffsetSpec("end"), {0: 100, 1: 5}),
        (OffsetSpec("offset", 3), {0: 10, 1: 3}),
        (OffsetSpec("last", 3), {0: 97, 1: 2}),
        (OffsetSpec("time", 1), {0: 55, 1: 5}),
        (Shift(-1000), {0: 10}),
        (Shift(5), {0: 55}),
    ],
)
def test_new_offsets_are_within_the_bounds(
    target: OffsetSpec | Shift, expected: dict[int, int]
) -> None:
    bounds = {("a", 0): Bounds(10, 100, 55), ("a", 1): Bounds(0, 5)}
    changes = plan_reset({("a", 0): 50}, bounds, target)
    assert {change.partition: change.new for change in changes} == expected


def test_a_document_has_the_change_and_the_lag_that_follows() -> None:
    assert OffsetChange("t", 0, 40, 30, 100).document() == {
        "topic": "t",
        "partition": 0,
        "current": 40,
        "new": 30,
        "change": -10,
        "lag": 70,
    }
    assert OffsetChange("t", 0, None, 30, 100).document()["change"] is None


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (OffsetSpec("beginning"), 10),
        (OffsetSpec("end"), 20),
        (OffsetSpec("offset", 15), 15),
        (OffsetSpec("offset", 3), 10),
        (OffsetSpec("offset", 99), 20),
        (OffsetSpec("last", 4), 16),
        (OffsetSpec("last", 99), 10),
        (OffsetSpec("time", 1), 12),
    ],
)
def test_position_resolves_to_an_offset_within_the_bounds(spec: OffsetSpec, expected: int) -> None:
    assert resolve(spec, Bounds(10, 20, at_time=12)) == expected


def test_a_time_after_every_record_is_the_end() -> None:
    assert resolve(OffsetSpec("time", 1), Bounds(10, 20, at_time=None)) == 20
