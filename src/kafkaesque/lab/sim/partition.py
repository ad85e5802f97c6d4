"""Client requests to one partition on one node, as a request handler applies them to the real Partition."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.raft.types import NO_TERM
from kafkaesque.lab.sim.ground_truth import EntryFact, batch_fact
from kafkaesque.model.errors import KafkaError
from kafkaesque.model.ids import LeaderEpoch, Offset
from kafkaesque.records.batch import read_header, stamp


class ProduceOutcome(Enum):
    COMMITTED = "committed"
    REFUSED = "refused"
    """Nothing was written."""
    UNKNOWN = "unknown"
    """It may or may not be committed later."""


class ProduceResult(NamedTuple):
    outcome: ProduceOutcome
    fact: EntryFact | None = None
    reason: str = ""


Reply = Callable[[ProduceResult], None]


def produce(partition: Partition, batch: bytes, reply: Reply) -> None:
    """Appends with acks=all; replies once the batch is committed or cannot be."""
    try:
        partition.check_leads()
        appended = partition.append(memoryview(bytearray(batch)), all_replicas=True)
        if not isinstance(appended, Appended):
            raise TypeError("append inspected a batch that needs no inspection")
        committed = partition.commit(appended, all_replicas=True)
    except KafkaError as error:
        reply(ProduceResult(ProduceOutcome.REFUSED, None, repr(error)))
        return
    header = stamp(bytearray(batch), read_header(batch), appended.base_offset, LeaderEpoch(0))
    done = ProduceResult(ProduceOutcome.COMMITTED, batch_fact(header, NO_TERM))
    if committed is None:
        reply(done)
        return

    def answer() -> None:
        error = committed.exception()
        reply(done if error is None else ProduceResult(ProduceOutcome.UNKNOWN, None, repr(error)))

    committed.add_done_callback(lambda _: answer())


def readable(partition: Partition) -> Offset | None:
    """The high watermark of a partition that serves now; None if it does not."""
    try:
        partition.check_serves()
    except KafkaError:
        return None
    return partition.high_watermark
