"""Appends batches of transactional producers after their coordinator has verified the transaction.

The first batch of a transaction in a partition waits until the coordinator has confirmed that the
partition belongs to the transaction: it was added by AddPartitionsToTxn, or is added by this
request (KIP-890). Further batches of the producer for that partition wait for it, so that their
order is kept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.partitions.rules.open_transactions import (
    RefusedByCoordinator,
    VerificationGuard,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import ProducerId, ProducerIdentity, TopicPartition
from kafkaesque.records.batch import BatchHeader, read_header

ADDS_SINCE: Final = 12
_ABORTABLE_SINCE: Final = 11
RETRY_SECONDS: Final = 0.01
RETRIES_MAX: Final = 20
"""How often a partition is added to the next transaction while the markers of the last one are
being written. Takes less time than a client's own retry backoff."""

VERIFICATIONS_MAX: Final = 3
"""How often the coordinator is called because a marker arrived during the verification."""

_TRY_AGAIN: Final = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Old clients do not expect these in a Produce response. NOT_ENOUGH_REPLICAS makes them retry."""

Codes = Mapping[TopicPartition, ErrorCode]
Waiting = dict[tuple[Partition, ProducerId], asyncio.Task[Appended]]
"""The last waiting batch of a producer for a partition."""


class CoordinatorClient(Protocol):
    waiting: Waiting

    def put_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: list[TopicPartition],
        *,
        verify_only: bool,
    ) -> Awaitable[Codes]: ...


class TransactionalRequest:
    """The batches of one Produce request with a transactional id."""

    __slots__ = (
        "_answers",
        "_calls",
        "_check_writer",
        "_loop",
        "_names",
        "_transactional_id",
        "_version",
    )

    def __init__(
        self,
        calls: CoordinatorClient,
        transactional_id: str,
        version: int,
        loop: asyncio.AbstractEventLoop,
        check_writer: Callable[[ProducerIdentity], None] | None = None,
    ) -> None:
        """`check_writer` rejects delayed requests where the epoch does not: in the old flow."""
        self._check_writer = check_writer if version < ADDS_SINCE else None
        self._calls = calls
        self._transactional_id = transactional_id
        self._version = version
        self._loop = loop
        self._names: dict[ProducerIdentity, list[TopicPartition]] = {}
        self._answers: dict[ProducerIdentity, asyncio.Task[Codes]] = {}

    def append(
        self, partition: Partition, records: memoryview, *, all_replicas: bool
    ) -> Appended | asyncio.Task[Appended]:
        """As `Partition.append`."""
        header = read_header(records)
        if not header.is_transactional:
            return partition.append(records, all_replicas=all_replicas)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if self._check_writer is not None:
            self._check_writer(producer)
        key = (partition, header.producer_id)
        waiting = self._calls.waiting
        previous = waiting.get(key)
        producers = partition.producers
        needs_verification = producers.needs_guard(header.producer_id, header.producer_epoch)
        if producers.is_repeated(header) or (previous is None and not needs_verification):
            return partition.append(records, all_replicas=all_replicas)
        if previous is None:
            self._names.setdefault(producer, []).append(partition.name)
        work = self._append_later(partition, records, header, previous, all_replicas)
        task = waiting[key] = self._loop.create_task(work)
        task.add_done_callback(lambda _: _forget(waiting, key, task))
        return task

    async def _append_later(
        self,
        partition: Partition,
        records: memoryview,
        header: BatchHeader,
        previous: asyncio.Task[Appended] | None,
        all_replicas: bool,
    ) -> Appended:
        # Held from now on: a marker that arrives while this waits revokes it.
        guard = _hold(partition, header)
        if previous is not None:
            await asyncio.wait([previous])
        for number in range(VERIFICATIONS_MAX):
            if not partition.producers.needs_guard(header.producer_id, header.producer_epoch):
                break
            is_alone = previous is not None or number > 0
            if await self._verified(partition, header, guard, alone=is_alone):
                break
            # The marker may belong to the previous transaction, whose end the coordinator waited
            # for: only an answer to a call made after the marker counts.
            guard = _hold(partition, header)
        appended = partition.append(records, all_replicas=all_replicas, guard=guard)
        return await appended if isinstance(appended, asyncio.Task) else appended

    async def _verified(
        self,
        partition: Partition,
        header: BatchHeader,
        guard: VerificationGuard | None,
        *,
        alone: bool,
    ) -> bool:
        """Returns whether the coordinator has confirmed the transaction, and no marker arrived
        meanwhile."""
        transactions = partition.producers.transactions
        try:
            await self._check_with_coordinator(partition.name, header, alone=alone)
        except RefusedByCoordinator:
            if guard is not None:
                transactions.release(header.producer_id, guard)
            raise
        return guard is not None and transactions.holds(header.producer_id, guard)

    async def _check_with_coordinator(
        self, name: TopicPartition, header: BatchHeader, *, alone: bool
    ) -> None:
        """Raises RefusedByCoordinator. Calls the coordinator once for all partitions of the request,
        except for batches that had to wait for others."""
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if alone:
            code = (await self._put(producer, [name]))[name]
        else:
            answer = self._answers.get(producer)
            if answer is None:
                names = self._names[producer]
                answer = self._loop.create_task(self._put(producer, names))
                self._answers[producer] = answer
            code = (await asyncio.shield(answer))[name]
        if code is not ErrorCode.NONE:
            raise RefusedByCoordinator(_producer_error(code, self._version))

    async def _put(self, producer: ProducerIdentity, names: list[TopicPartition]) -> Codes:
        verify_only = self._version < ADDS_SINCE
        for _ in range(RETRIES_MAX):
            codes = await self._calls.put_partitions(
                self._transactional_id, producer, names, verify_only=verify_only
            )
            if ErrorCode.CONCURRENT_TRANSACTIONS not in codes.values():
                break
            await asyncio.sleep(RETRY_SECONDS)
        return codes


def _hold(partition: Partition, header: BatchHeader) -> VerificationGuard | None:
    """Returns a guard; None if the transaction is already open here."""
    producers = partition.producers
    if not producers.needs_guard(header.producer_id, header.producer_epoch):
        return None
    return producers.transactions.guard(
        header.producer_id, header.producer_epoch, header.base_sequence
    )


def _forget(
    waiting: Waiting, key: tuple[Partition, ProducerId], task: asyncio.Task[Appended]
) -> None:
    if waiting.get(key) is task:
        del waiting[key]
    if not task.cancelled():
        task.exception()  # retrieved here, reported in the response


def _producer_error(code: ErrorCode, version: int) -> ErrorCode:
    """Maps an error to one that a producer of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        # Not fatal for a Produce: the coordinator reports whether the producer is fenced for good.
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code in _TRY_AGAIN and not (
        version >= ADDS_SINCE and code is ErrorCode.CONCURRENT_TRANSACTIONS
    ):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return code
