"""Idle consumer groups: a group is settled when all members share a generation."""

from __future__ import annotations

import pytest

from kafkaesque.lab.bench.idle_clients import IdleGroup


@pytest.mark.parametrize(
    ("synced", "settled"),
    [
        ({}, False),
        ({"a": 1}, False),
        ({"a": 1, "b": 2}, False),
        ({"a": 2, "b": 2}, True),
    ],
)
def test_group_is_settled_when_all_members_share_a_generation(
    synced: dict[str, int], settled: bool
) -> None:
    assert IdleGroup("g", 2, synced).is_settled is settled
