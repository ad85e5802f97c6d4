"""Counts of all ways in which a copy can differ from its source."""

from __future__ import annotations

import pytest

from kafkaesque.lab.faults.runs.transactions_copy import CopyErrors, compare

SOURCE = [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("target", "errors"),
    [
        (b"0 1 2 3", CopyErrors(0, 0, 0, 0)),
        (b"0 1 3", CopyErrors(1, 0, 0, 0)),
        (b"0 1 1 2 3", CopyErrors(0, 1, 0, 0)),
        (b"0 2 1 3", CopyErrors(0, 0, 0, 1)),
        (b"0 1 2 3 0 1", CopyErrors(0, 2, 0, 1)),
        (b"0 1 2 3 9", CopyErrors(0, 0, 1, 0)),
        (b"", CopyErrors(4, 0, 0, 0)),
    ],
)
def test_every_difference_is_counted(target: bytes, errors: CopyErrors) -> None:
    found = compare(SOURCE, target.split())
    assert found == errors
    assert found.is_exact is (target.split() == SOURCE)
