"""Expiry of silent producers when the wall clock is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.broker.server.local_broker import LocalBroker

from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.testing.clock import ManualClock

DAY_S = 86_400
ME = ProducerId(7)


class JumpingClock(ManualClock):
    """Its wall can be set without that time passes."""

    def __init__(self) -> None:
        super().__init__()
        self.jumped_ms = 0

    def wall_ms(self) -> TimestampMs:
        return TimestampMs(super().wall_ms() + self.jumped_ms)


@pytest.mark.parametrize("days", [10, -10])
def test_producer_is_forgotten_after_its_time_has_passed_wherever_the_wall_clock_jumps(
    tmp_path: Path, days: int
) -> None:
    clock = JumpingClock()
    with LocalBroker(tmp_path / "data", {}, clock) as broker:
        broker.create("a", retention_ms="-1")
        partition = broker.partition("a")
        record = Record(Offset(0), clock.wall_ms(), b"k", b"v")

        async def write() -> None:
            batch = encode_batch(
                [record], producer_id=ME, producer_epoch=ProducerEpoch(0), base_sequence=0
            )
            partition.append(memoryview(batch), all_replicas=True)

        def maintain() -> bool:
            """Whether the producer is still known."""
            broker.run(broker.context.partitions.maintain(DAY_S * 1000))
            return partition.producers.get(ME) is not None

        broker.run(write())
        assert maintain()
        clock.jumped_ms = days * DAY_S * 1000
        assert maintain()
        clock.advance(DAY_S)
        assert maintain()
        clock.advance(1)
        assert not maintain()
