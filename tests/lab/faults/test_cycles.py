"""Cycles of a directed graph."""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.checks.transactions import find_cycles


@pytest.mark.parametrize(
    ("edges", "cycles"),
    [
        ({}, []),
        ({1: [2], 2: [3]}, []),
        ({1: [1]}, []),
        ({1: [2], 2: [1]}, [[1, 2]]),
        ({1: [2], 2: [3], 3: [1], 4: [1], 3_000: [4]}, [[1, 2, 3]]),
        ({1: [2], 2: [1], 3: [4], 4: [3], 2_000: [1, 3]}, [[1, 2], [3, 4]]),
        ({1: [2, 3], 2: [4], 3: [4], 4: []}, []),
        ({1: [2], 2: [3, 1], 3: [2]}, [[1, 2, 3]]),
    ],
)
def test_cycles_are_found(edges: dict[int, list[int]], cycles: list[list[int]]) -> None:
    assert sorted(find_cycles(edges)) == cycles


def test_a_long_chain_needs_no_deep_recursion() -> None:
    edges = {node: [node + 1] for node in range(20_000)}
    assert find_cycles(edges) == []
    edges[20_000] = [0]
    assert len(find_cycles(edges)[0]) == 20_001
