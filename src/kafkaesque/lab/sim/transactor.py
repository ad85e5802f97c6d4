"""A transactional producer of the new flow (KIP-890): one transaction after the other, each retried until
its outcome is known. The network may deliver its requests a second time, much later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Final, TypeVar

from kafkaesque.broker.partitions.rules.admission import Appended
from kafkaesque.broker.transactions.types import (
    NEW_FLOW,
    NOBODY,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
)
from kafkaesque.lab.sim.broker_transactions import Work
from kafkaesque.lab.sim.checkers.transactions import AcknowledgedBatch, TransactionEnd
from kafkaesque.lab.sim.loop import SimulatedLoop
from kafkaesque.lab.sim.schedule import MILLISECOND_US, Action, EventSchedule
from kafkaesque.lab.sim.transaction_requests import TransactionRequests
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ErrorCode, KafkaError
from kafkaesque.model.ids import GroupId, Offset, TimestampMs
from kafkaesque.records.codec import Record, encode_batch

A = TypeVar("A")

TIMEOUT_MS: Final = 1_200
"""The transaction timeout; some transactions take longer."""
_PAUSE_S_MAX: Final = 0.06
_WRITES_MAX: Final = 4
_TRIES_MAX: Final = 4
"""After this many unanswered attempts the write is given up, and the transaction with it."""
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class ClientProcess:
    """The process that a loop needs; this one never dies."""

    def __init__(self, schedule: EventSchedule, clock: Clock) -> None:
        self._schedule = schedule
        self.clock = clock

    def later(self, delay_us: int, action: Action) -> None:
        self._schedule.after(delay_us, action)

    def sync_latency_us(self) -> int:
        return MILLISECOND_US


class _GivenUp(Exception):
    """The outcome is unknown, or the request was refused for good."""


class SimulatedTransactor:
    """Call `start` once. `is_finished` becomes true some time after `is_finishing` was set."""

    def __init__(
        self,
        transactional_id: str,
        coordinator: GroupId,
        groups: Sequence[GroupId],
        requests: TransactionRequests,
        random: Random,
    ) -> None:
        self._id = transactional_id
        self._coordinator = coordinator
        self._groups = groups
        self._requests = requests
        self._random = random
        self._producer = NOBODY
        self._sequences: dict[GroupId, int] = {}
        self.ended_count = 0
        self.is_finishing = False
        self.is_finished = False

    def start(self, process: ClientProcess) -> None:
        SimulatedLoop(process).create_task(self._run())

    async def _run(self) -> None:
        while True:
            await self._init()
            if self.is_finishing:
                # The last init has aborted any open transaction.
                self.is_finished = True
                return
            while await self._transact():
                self.ended_count += 1

    async def _init(self) -> None:
        request = InitRequest(
            transactional_id=self._id,
            timeout_ms=TIMEOUT_MS,
            spare_producer_id=self._requests.next_producer_id(),
        )
        answer = await self._until(
            self._coordinator,
            lambda broker: broker.init(request),
            InitAnswer,
            lambda one: one.error,
        )
        self._producer = answer.producer
        self._sequences.clear()

    async def _transact(self) -> bool:
        """Runs one transaction. Returns whether another one may follow with the same producer."""
        await asyncio.sleep(self._random.uniform(0, _PAUSE_S_MAX))
        sent: list[AcknowledgedBatch] = []
        is_commit = self._random.random() < 0.7
        try:
            for _ in range(self._random.randint(1, _WRITES_MAX)):
                sent.append(await self._write(self._random.choice(self._groups)))
        except _GivenUp:
            is_commit = False
        if is_commit:
            self._requests.commit_requested(self._producer)
        request = EndRequest(
            transactional_id=self._id,
            producer=self._producer,
            is_commit=is_commit,
            flow=NEW_FLOW,
            spare_producer_id=self._requests.next_producer_id(),
        )
        try:
            answer = await self._until(
                self._coordinator,
                lambda broker: broker.end(request),
                EndAnswer,
                lambda one: one.error,
            )
        except _GivenUp:
            return False
        self._requests.transaction_ended(TransactionEnd(self._producer, is_commit, tuple(sent)))
        self._producer = answer.producer
        self._sequences.clear()
        return not self.is_finishing

    async def _write(self, group: GroupId) -> AcknowledgedBatch:
        sequence = self._sequences.get(group, 0)
        batch = bytes(
            encode_batch(
                [Record(Offset(0), TimestampMs(1_700_000_000_000), None, b"%d" % sequence)],
                producer_id=self._producer.producer_id,
                producer_epoch=self._producer.epoch,
                base_sequence=sequence,
                is_transactional=True,
            )
        )
        appended = await self._until(
            group, lambda broker: broker.produce(self._id, group, batch), Appended, tries=_TRIES_MAX
        )
        self._sequences[group] = sequence + 1
        return AcknowledgedBatch(group, appended.base_offset)

    async def _until(
        self,
        group: GroupId,
        work: Work,
        answer: type[A],
        code_of: Callable[[A], ErrorCode] = lambda _: ErrorCode.NONE,
        tries: int = 1 << 30,
    ) -> A:
        """Sends the request until the answer is final, at most `tries` times."""
        for _ in range(tries):
            reply = await self._requests.send(group, work)
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if isinstance(reply, answer):
                code = code_of(reply)
                if code is ErrorCode.NONE:
                    return reply
            elif isinstance(reply, KafkaError):
                code = reply.code
            if code not in _TRY_AGAIN:
                break
            await asyncio.sleep(self._random.uniform(0.005, 0.06))
        raise _GivenUp
