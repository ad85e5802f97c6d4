"""Offsets of transactions against each other and against plain commits: the newest record counts."""

from __future__ import annotations

import pytest

from kafkaesque.broker.groups.log_format import OffsetKey, OffsetValue
from kafkaesque.broker.groups.offsets import OffsetTable
from kafkaesque.model.ids import Offset, PartitionIndex, ProducerId, TimestampMs

KEY = OffsetKey("g", "t", PartitionIndex(0))
OTHER = OffsetKey("g", "t", PartitionIndex(1))
ONE, TWO = ProducerId(1), ProducerId(2)


def value(offset: int) -> OffsetValue:
    return OffsetValue(Offset(offset), "", TimestampMs(0))


def run(table: OffsetTable, script: str) -> None:
    """`p5`: plain commit of 5; `1:7` producer 1 writes 7 in its transaction; `1c`, `1a`: its end."""
    for word in script.split():
        if word[0] == "p":
            table.replay(KEY, value(int(word[1:])))
        elif ":" in word:
            producer, offset = word.split(":")
            table.replay_pending(ProducerId(int(producer)), KEY, value(int(offset)))
        else:
            table.replay_marker(ProducerId(int(word[0])), is_commit=word[1] == "c")


@pytest.mark.parametrize(
    ("script", "offset"),
    [
        ("1:7 1c", 7),
        ("p5 1:7 1c", 7),
        ("1:7 p5 1c", 5),
        ("1:7 p5 1:8 1c", 8),
        ("1:7 p5 1a", 5),
        ("p5 1:7 1a", 5),
        ("1:7 2:8 2c 1c", 8),
        ("1:7 2:8 1c 2c", 8),
        ("2:8 1:7 2c 1c", 7),
        ("1:7 2:8 2a 1c", 7),
        ("1:7 p5 1c 1:9 1c", 9),
    ],
)
def test_newest_record_counts_whenever_its_transaction_ends(script: str, offset: int) -> None:
    table = OffsetTable()
    run(table, script)
    found = table.get(KEY)
    assert found is not None
    assert found.offset == offset
    assert not table.has_in_flight("g")


def test_outdated_offset_is_unstable_until_its_transaction_ends() -> None:
    table = OffsetTable()
    run(table, "1:7 p5")
    assert KEY in table.pending
    run(table, "1c")
    assert KEY not in table.pending


def test_plain_commit_outdates_its_own_partition_only() -> None:
    table = OffsetTable()
    table.replay_pending(ONE, KEY, value(7))
    table.replay_pending(ONE, OTHER, value(8))
    table.replay(KEY, value(5))
    assert table.replay_marker(ONE, is_commit=True) == [OTHER]
    assert table.replay_marker(TWO, is_commit=True) == []
