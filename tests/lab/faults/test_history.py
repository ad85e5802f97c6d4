"""Histories are written and read without loss, and an error names the malformed line."""

from __future__ import annotations

import pytest
from tests.lab.faults.histories import Story, dense, polled, random_clean

from kafkaesque.lab.faults.checks.history import (
    ClientOperation,
    DestroyedRange,
    Function,
    History,
    HistoryUnusable,
    OperationOutcome,
    Polled,
    SentRecord,
    read_lines,
    write_lines,
)


def test_history_is_read_as_it_was_written() -> None:
    story = Story(idempotent=False, final_reads_complete=False, damaged=(DestroyedRange(0, 3, 4),))
    story.assign(0, 1).send(1, 0).send(2, None, outcome=OperationOutcome.INFO)
    story.txn(
        SentRecord(0, 1, 3),
        polled({0: dense(1), 1: [(0, "strange")]}),
        outcome=OperationOutcome.FAIL,
    )
    story.poll({0: dense(1, 3)}, rebalanced=[1]).final({0: dense(1, 3)})
    history = History(story.terms, story.operations, "by-hand")
    assert read_lines(write_lines(history)) == history


def test_random_history_is_read_as_it_was_written() -> None:
    history = random_clean(5)
    assert read_lines(write_lines(history)) == history


def test_operations_are_read_in_the_order_of_their_indexes() -> None:
    history = random_clean(6)
    heading, *lines = write_lines(history)
    assert read_lines([heading, *reversed(lines)]) == history


def test_blank_lines_are_ignored() -> None:
    history = random_clean(7)
    assert read_lines([b"\n", *write_lines(history), b"\n"]) == history


@pytest.mark.parametrize(
    ("lines", "text"),
    [
        ([], "empty"),
        ([b"{}\n"], "line 1"),
        ([b'{"kafkaesque_history": 2, "name": "", "terms": {}}'], "format 2"),
        ([*list(write_lines(Story().history)), b'{"index": 0}'], "line 2"),
        ([*list(write_lines(Story().history)), b"no json"], "line 2"),
    ],
)
def test_text_that_is_not_a_history_is_rejected(lines: list[bytes], text: str) -> None:
    with pytest.raises(HistoryUnusable, match=text):
        read_lines(lines)


def test_sends_and_polls_of_a_transaction_are_distinguished() -> None:
    micro = (SentRecord(0, 0, 1), Polled({1: dense(5)}), SentRecord(1, None, 2))
    operation = ClientOperation(0, 0, OperationOutcome.OK, Function.TXN, micro)
    assert operation.sends == [micro[0], micro[2]]
    assert operation.polls == [micro[1]]
