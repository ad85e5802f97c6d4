"""Transactions in a partition on a real log: who may write, what is stable, what a restart restores."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.broker.partitions.rig import START_MS, Rig, batch, open_rig
from tests.waiting import until

from kafkaesque.broker.partitions import transaction_coordinator
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.partitions.rules.markers import Marker, encode_marker
from kafkaesque.broker.partitions.rules.open_transactions import (
    TransactionCoordinatorFenced,
    VerificationGuard,
)
from kafkaesque.broker.partitions.transaction_coordinator import TransactionShard
from kafkaesque.broker.partitions.waiting import BytesAwaited
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    AddAnswer,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    Markers,
    PartitionsRequest,
    TransactionConfig,
)
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTransactionState,
    NotCoordinator,
    OutOfOrderSequence,
)
from kafkaesque.model.ids import (
    LeaderEpoch,
    Offset,
    PartitionIndex,
    ProducerEpoch,
    ProducerId,
    ProducerIdentity,
    TopicPartition,
)
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.service.process import new_event_loop

ME = ProducerId(7)
SHUT = NotCoordinator("shut")


def run(story: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(story)


def transactional(sequence: int = 0, epoch: int = 0, producer: ProducerId = ME) -> memoryview:
    return memoryview(
        encode_batch(
            [Record(Offset(0), START_MS, b"k", b"v")],
            producer_id=producer,
            producer_epoch=ProducerEpoch(epoch),
            base_sequence=sequence,
            is_transactional=True,
        )
    )


def guard(partition: Partition, epoch: int = 0, sequence: int = 0) -> VerificationGuard:
    return partition.producers.transactions.guard(ME, ProducerEpoch(epoch), sequence)


async def append(
    partition: Partition, data: memoryview, held: VerificationGuard | None = None
) -> None:
    appended = partition.append(data, all_replicas=True, guard=held)
    assert isinstance(appended, Appended)
    await committed(partition, appended)


async def committed(partition: Partition, appended: Appended) -> None:
    commit = partition.commit(appended, all_replicas=True)
    if commit is not None:
        await commit


async def mark(partition: Partition, *, commit: bool, epoch: int = 0) -> None:
    marker = encode_marker(ME, ProducerEpoch(epoch), Marker(commit, 0), START_MS)
    await committed(partition, partition.append_own(marker))


def test_first_batch_of_a_transaction_needs_a_guard_and_the_others_do_not(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            with pytest.raises(InvalidTransactionState):
                rig.partition.append(transactional(), all_replicas=True)
            assert rig.partition.log_end_offset == 0
            await append(rig.partition, transactional(), guard(rig.partition))
            await append(rig.partition, transactional(1))
            assert (rig.partition.high_watermark, rig.partition.stable_offset) == (2, 0)

    run(story())


def test_batch_that_was_verified_before_the_end_is_not_appended_after_it(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            held = guard(rig.partition)
            await mark(rig.partition, commit=True)
            with pytest.raises(InvalidTransactionState):
                rig.partition.append(transactional(), all_replicas=True, guard=held)
            assert rig.partition.stable_offset == rig.partition.high_watermark == 1

    run(story())


def test_first_batch_must_not_skip_one_that_is_being_verified(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            held = guard(rig.partition, sequence=0)
            with pytest.raises(OutOfOrderSequence):
                rig.partition.append(transactional(1), all_replicas=True, guard=held)
            await append(rig.partition, transactional(0), held)

    run(story())


def test_plain_batch_of_a_producer_with_an_open_transaction_is_refused(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            with pytest.raises(InvalidTransactionState):
                rig.partition.append(batch(b"a", producer=ME, sequence=1), all_replicas=True)
            await append(rig.partition, batch(b"others may"))

    run(story())


def test_marker_fences_older_epochs_and_late_markers_do_not_touch_the_next_transaction(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            await mark(rig.partition, commit=True, epoch=1)
            with pytest.raises(InvalidProducerEpoch):
                rig.partition.append(transactional(1), all_replicas=True)
            judge = rig.partition.producers.judge_marker
            assert not judge(ME, ProducerEpoch(1), 0, is_epoch_new=True)
            await append(rig.partition, transactional(0, 1), guard(rig.partition, 1))
            for epoch in (0, 1):
                with pytest.raises(InvalidProducerEpoch):
                    judge(ME, ProducerEpoch(epoch), 0, is_epoch_new=True)
            assert judge(ME, ProducerEpoch(2), 0, is_epoch_new=True)
            with pytest.raises(TransactionCoordinatorFenced):
                judge(ME, ProducerEpoch(2), -1, is_epoch_new=True)

    run(story())


@pytest.mark.parametrize("saves", [True, False], ids=["snapshot", "headers only"])
def test_open_and_aborted_transactions_are_known_after_reopening(
    tmp_path: Path, saves: bool
) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            await mark(rig.partition, commit=False)
            await append(rig.partition, transactional(1), guard(rig.partition, sequence=1))
            if saves:
                rig.partition.save_producers()
        async with open_rig(tmp_path, clean=False) as rig:
            table = rig.partition.producers.transactions
            assert rig.partition.stable_offset == 2
            assert [one.first_offset for one in table.aborted.between(Offset(0), Offset(9))] == [0]
            await append(rig.partition, transactional(2))
            await mark(rig.partition, commit=True)
            assert rig.partition.stable_offset == rig.partition.high_watermark == 5

    run(story())


def test_read_committed_reader_is_not_woken_by_records_it_cannot_see(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            loop = asyncio.get_running_loop()
            stable, any_of_them = BytesAwaited(1, loop, stable_only=True), BytesAwaited(1, loop)
            held = guard(rig.partition)
            first = rig.partition.append(transactional(), all_replicas=True, guard=held)
            assert isinstance(first, Appended)
            for watcher in (stable, any_of_them):
                rig.partition.watch(watcher)
            await committed(rig.partition, first)
            assert any_of_them.done.done()
            assert not stable.done.done()
            read = rig.partition.read(Offset(0), 1000, at_least_one=True, stable_only=True)
            assert (len(read.records), read.next_offset) == (0, 0)
            await mark(rig.partition, commit=True)
            assert stable.done.done()

    run(story())


def test_silent_producer_with_an_open_transaction_is_not_forgotten(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            await append(rig.partition, transactional(), guard(rig.partition))
            producers = rig.partition.producers
            for after_ms in (0, 10_000):
                producers.expire(after_ms, 1000)
            assert producers.get(ME) is not None
            await mark(rig.partition, commit=True)
            for after_ms in (20_000, 21_000):
                producers.expire(after_ms, 1000)
            assert producers.get(ME) is not None
            producers.expire(21_001, 1000)
            assert producers.get(ME) is None

    run(story())


# -- the coordinator's driver -------------------------------------------------------------------------

TARGET = TopicPartition("t", PartitionIndex(0))


class Sink:
    """Receives markers; none arrives until `open`."""

    def __init__(self) -> None:
        self.sent: list[Markers] = []
        self.open = asyncio.Event()

    async def send(self, markers: Markers, _: LeaderEpoch) -> Collection[TopicPartition]:
        self.sent.append(markers)
        await self.open.wait()
        return markers.partitions


def new_host(rig: Rig, sink: Sink) -> TransactionShard:
    return TransactionShard(
        rig.partition,
        lambda: TransactionRegistry(TransactionConfig()),
        rig.clock,
        asyncio.get_running_loop(),
        rig.partition.leader_epoch,
        sink.send,
    )


async def begin(host: TransactionShard) -> ProducerIdentity:
    init = InitRequest(transactional_id="tx", timeout_ms=60_000, spare_producer_id=ME)
    answer = await host.ask(lambda r, token, now: r.init_producer(init, token, now), InitAnswer)
    wanted = PartitionsRequest(
        transactional_id="tx", producer=answer.producer, partitions=frozenset([TARGET])
    )
    await host.ask(lambda r, token, now: r.add_partitions(wanted, token, now), AddAnswer)
    return answer.producer


def ask_to_end(host: TransactionShard, producer: ProducerIdentity) -> asyncio.Task[EndAnswer]:
    wanted = EndRequest(transactional_id="tx", producer=producer, is_commit=True, flow=NEW_FLOW)
    work = host.ask(lambda r, token, now: r.end(wanted, token, now), EndAnswer)
    return asyncio.get_running_loop().create_task(work)


def test_markers_are_sent_only_when_the_decision_is_durable(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            sink = Sink()
            host = new_host(rig, sink)
            producer = await begin(host)
            rig.calls.entered.clear()
            rig.calls.gate.clear()
            ending = ask_to_end(host, producer)
            assert await asyncio.to_thread(rig.calls.entered.wait, 30)
            assert not sink.sent
            assert not ending.done()
            rig.calls.gate.set()
            assert (await ending).error is ErrorCode.NONE
            sink.open.set()
            await until(lambda: host.reading().describe("tx").state == "CompleteCommit")
            assert len(sink.sent) == 1
            host.close(SHUT)

    run(story())


def test_new_coordinator_sends_the_markers_that_its_predecessor_owed(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            first, second = Sink(), Sink()
            host = new_host(rig, first)
            producer = await begin(host)
            await ask_to_end(host, producer)
            host.close(SHUT)
            successor = new_host(rig, second)
            second.open.set()
            await until(lambda: successor.registry is not None and second.sent)
            assert second.sent[0].producer == ProducerIdentity(ME, ProducerEpoch(1))
            assert second.sent[0].is_commit
            successor.close(SHUT)

    run(story())


def ask_to_add(host: TransactionShard, producer: ProducerIdentity) -> asyncio.Task[AddAnswer]:
    wanted = PartitionsRequest(
        transactional_id="tx", producer=producer, partitions=frozenset([TARGET])
    )
    work = host.ask_when_ended(
        "tx", lambda r, token, now: r.add_partitions(wanted, token, now), AddAnswer
    )
    return asyncio.get_running_loop().create_task(work)


def test_next_transaction_waits_for_the_markers_of_the_last(tmp_path: Path) -> None:
    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            sink = Sink()
            host = new_host(rig, sink)
            ended = await ask_to_end(host, await begin(host))
            adding = ask_to_add(host, ended.producer)
            await until(lambda: sink.sent)
            assert not adding.done()
            sink.open.set()
            assert (await adding).error is ErrorCode.NONE
            host.close(SHUT)

    run(story())


def test_next_transaction_is_rejected_when_the_markers_take_too_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_coordinator, "ENDING_SECONDS_MAX", 0.01)

    async def story() -> None:
        async with open_rig(tmp_path) as rig:
            host = new_host(rig, Sink())
            ended = await ask_to_end(host, await begin(host))
            added = await ask_to_add(host, ended.producer)
            assert added.error is ErrorCode.CONCURRENT_TRANSACTIONS
            host.close(SHUT)

    run(story())
