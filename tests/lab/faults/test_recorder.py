"""Operations of client threads are recorded in the order of their invocation."""

from __future__ import annotations

from kafkaesque.lab.faults.checks.history import Function, OperationOutcome, SentRecord
from kafkaesque.lab.faults.recorder import Recorder


def test_operations_are_ordered_by_invocation() -> None:
    recorder = Recorder()
    first, second = (recorder.invoke(7, Function.SEND) for _ in range(2))
    second.complete(OperationOutcome.OK, [SentRecord(0, 1, 2)])
    first.complete(OperationOutcome.INFO, [SentRecord(0, None, 1)], rebalanced=[3], keys=[4])
    one, two = recorder.operations()
    assert (one.index, two.index) == (0, 1)
    assert (one.outcome, one.rebalanced, one.keys) == (OperationOutcome.INFO, (3,), (4,))
    assert one.invoked_us <= two.invoked_us <= two.completed_us <= one.completed_us


def test_only_acknowledged_sends_count_as_progress() -> None:
    recorder = Recorder()
    for f, outcome in [
        (Function.SEND, OperationOutcome.OK),
        (Function.SEND, OperationOutcome.FAIL),
        (Function.SEND, OperationOutcome.INFO),
        (Function.POLL, OperationOutcome.OK),
    ]:
        recorder.invoke(0, f).complete(outcome)
    assert recorder.acknowledged == 1


def test_process_numbers_are_unique() -> None:
    recorder = Recorder()
    assert len({recorder.next_process() for _ in range(100)}) == 100
