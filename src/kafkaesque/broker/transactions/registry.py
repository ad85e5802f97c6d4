"""All transactional ids of one coordinator partition: the entry point of the coordinator's rules.

Construct it, `replay` every record of the log, call `loaded`, then serve requests. The driver follows
the docstring of `types.Effects`. The rules are those of Kafka's TransactionCoordinator without its
"pending" states: a decision takes effect at once, and answers wait for its record.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable

from kafkaesque.broker.transactions.connection_fence import ANY_CONNECTION, ConnectionFence
from kafkaesque.broker.transactions.log_format import decode, decode_key, tombstone
from kafkaesque.broker.transactions.transaction import Transaction
from kafkaesque.broker.transactions.types import (
    EPOCH_EXHAUSTED,
    NEW_FLOW,
    NO_PRODUCER_EPOCH,
    NOBODY,
    NOTHING,
    AddAnswer,
    AnswerValue,
    DescribedTransaction,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    PartitionsRequest,
    TransactionAnswer,
    TransactionConfig,
    TransactionEffects,
    TransactionState,
    VerifyAnswer,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode, check
from kafkaesque.model.ids import (
    NO_PRODUCER,
    ProducerEpoch,
    ProducerIdentity,
    TimestampMs,
    TopicPartition,
)

_ID_BYTES_MAX = 32_767
"""The length of a string in the log has 16 bits."""


class TransactionRegistry:
    """Requests in, effects out."""

    def __init__(self, config: TransactionConfig, since: float = ANY_CONNECTION) -> None:
        """`since`: when it began to coordinate, on the clock of connections: see `connection_fence`."""
        self._config = config
        self._since = since
        self._transactions: dict[str, Transaction] = {}
        self._timeouts: list[tuple[float, str, int]] = []
        """A heap of (deadline, transactional id, number); entries of ended transactions are skipped
        when they are due."""
        self._is_loaded = False
        self.ended: Counter[str] = Counter()
        """The number of transactions that ended here, by cause."""

    # -- the log ------------------------------------------------------------------------------

    def replay(self, key: bytes, value: bytes | None) -> None:
        """Applies a committed record while loading; our own records have taken effect already.

        Raises CorruptMessage if the bytes are malformed.
        """
        transactional_id = decode_key(key)
        if self._is_loaded or transactional_id is None:
            return
        if value is None:
            self._transactions.pop(transactional_id, None)
        else:
            restored = Transaction.from_record(transactional_id, decode(value))
            self._transactions[transactional_id] = restored

    def loaded(self, now: Moment) -> TransactionEffects:
        """The log has been replayed: carries out decided transactions and starts the timeouts of open
        ones."""
        check(not self._is_loaded, "a registry is loaded once")
        self._is_loaded = True
        self._count_idle_time(now)
        records, markers = [], []
        for one in self._transactions.values():
            one.connections = ConnectionFence(self._since)
            if one.state is TransactionState.ONGOING:
                age_ms = now.wall_ms - one.started_ms
                self._start_timeout(one, now, min(max(one.timeout_ms - age_ms, 0), one.timeout_ms))
            elif one.state.is_ending and one.unmarked:
                markers.append(one.markers())
            elif one.state.is_ending:
                one.complete(now)
                records.append(one.record())
        return TransactionEffects(tuple(records), markers=tuple(markers))

    def _count_idle_time(self, now: Moment) -> None:
        """Computes the ages of ids relative to the newest record in the log, not to the wall clock,
        which may have jumped. From now on they grow with monotonic time."""
        newest_ms = max((one.updated.wall_ms for one in self._transactions.values()), default=0)
        newest_ms = min(newest_ms, now.wall_ms)
        for one in self._transactions.values():
            idle_ms = max(newest_ms - one.updated.wall_ms, 0)
            one.updated = one.updated._replace(monotonic=now.monotonic - idle_ms / 1000)

    # -- requests -----------------------------------------------------------------------------

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether InitProducerId or EndTxn may need a new producer id, to be allocated beforehand."""
        known = self._transactions.get(transactional_id)
        return known is None or known.is_epoch_exhausted

    def admits(
        self, transactional_id: str, producer: ProducerIdentity, connected_at: float
    ) -> bool:
        """Whether to accept a request of the old flow over a connection opened at `connected_at`: see
        `connection_fence`. True for any other producer: its requests are rejected later, with the
        proper error."""
        one = self._transactions.get(transactional_id)
        return one is None or one.producer != producer or one.connections.admits(connected_at)

    def admits_init(self, request: InitRequest) -> bool:
        """The same for InitProducerId, in either flow."""
        one = self._transactions.get(request.transactional_id)
        if one is None or request.connected_at is None or not _may_init(one, request.known):
            return True
        return one.connections.admits_init(request.connected_at)

    def init_producer(self, request: InitRequest, token: int, now: Moment) -> TransactionEffects:
        error = self._init_error(request)
        if error is not ErrorCode.NONE:
            return _answered(token, InitAnswer(error=error))
        known = self._transactions.get(request.transactional_id)
        if known is None:
            if request.spare_producer_id == NO_PRODUCER:
                return _answered(token, InitAnswer(error=ErrorCode.CONCURRENT_TRANSACTIONS))
            known = Transaction(request.transactional_id, request.spare_producer_id)
            known.connections = ConnectionFence(init=request.connected_at)
            self._transactions[request.transactional_id] = known
        elif not _may_init(known, request.known):
            return _answered(token, InitAnswer(error=ErrorCode.PRODUCER_FENCED))
        if known.state is TransactionState.ONGOING:
            # The client retries, and then finds the transaction of its predecessor aborted.
            self.ended["fenced"] += 1
            return self._fence(known, now, TransactionAnswer(token, _CONCURRENT_INIT))
        if known.state.is_ending:
            return _answered(token, _CONCURRENT_INIT)
        return self._adopt(known, request, token, now)

    def _init_error(self, request: InitRequest) -> ErrorCode:
        if not 0 < len(request.transactional_id.encode()) <= _ID_BYTES_MAX:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.timeout_ms <= self._config.timeout_ms_max:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        is_new = request.transactional_id not in self._transactions
        if is_new and len(self._transactions) >= self._config.ids_max:
            return ErrorCode.POLICY_VIOLATION
        return ErrorCode.NONE

    def _adopt(
        self, one: Transaction, request: InitRequest, token: int, now: Moment
    ) -> TransactionEffects:
        known_epoch = request.known.epoch
        epoch, last_epoch = one.producer.epoch, NO_PRODUCER_EPOCH
        is_known = request.known != NOBODY
        if one.is_epoch_exhausted and (not is_known or known_epoch == epoch):
            if request.spare_producer_id == NO_PRODUCER:
                return _answered(token, _CONCURRENT_INIT)
            producer = ProducerIdentity(request.spare_producer_id, ProducerEpoch(0))
            last_epoch = epoch if is_known else NO_PRODUCER_EPOCH
        elif is_known and epoch not in (NO_PRODUCER_EPOCH, known_epoch):
            producer, last_epoch = (
                one.producer,
                one.last_epoch,
            )  # a retry: the epoch was bumped before
        else:
            producer = one.producer._replace(epoch=ProducerEpoch(epoch + 1))
            last_epoch = epoch if is_known else NO_PRODUCER_EPOCH
        one.adopt(producer, last_epoch, request.timeout_ms, now)
        return TransactionEffects(
            (one.record(),), (TransactionAnswer(token, InitAnswer(producer=producer)),)
        )

    def add_partitions(
        self, request: PartitionsRequest, token: int, now: Moment
    ) -> TransactionEffects:
        """Begins a transaction, or adds to the one in progress."""
        one = self._transactions.get(request.transactional_id)
        error = _partitions_error(one, request)
        if one is None or error is not ErrorCode.NONE:
            return _answered(token, AddAnswer(error=error))
        is_ongoing = one.state is TransactionState.ONGOING
        if is_ongoing and request.partitions <= one.partitions:
            return _answered(token, AddAnswer())
        one.add(request.partitions, now)
        if not is_ongoing:
            self._start_timeout(one, now, one.timeout_ms)
        return TransactionEffects((one.record(),), (TransactionAnswer(token, AddAnswer()),))

    def verify_partitions(
        self, request: PartitionsRequest, token: int, now: Moment
    ) -> TransactionEffects:
        """Whether the partitions are in the transaction in progress (KIP-890, part 1)."""
        one = self._transactions.get(request.transactional_id)
        error = _partitions_error(one, request)
        is_ongoing = one is not None and one.state is TransactionState.ONGOING

        def judge(partition: TopicPartition) -> ErrorCode:
            if error is not ErrorCode.NONE:
                return error
            is_in = one is not None and is_ongoing and partition in one.partitions
            return ErrorCode.NONE if is_in else ErrorCode.TRANSACTION_ABORTABLE

        errors = {partition: judge(partition) for partition in request.partitions}
        return _answered(token, VerifyAnswer(errors=errors))

    def end(self, request: EndRequest, token: int, now: Moment) -> TransactionEffects:
        """Commits or aborts: the answer follows the decision, the markers are written later."""
        one = self._transactions.get(request.transactional_id)
        if one is None:
            return _answered(token, EndAnswer(error=ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        error = judge_end(one, request)
        if error is not None:
            successor = one.successor if error is ErrorCode.NONE else NOBODY
            return _answered(token, EndAnswer(error=error, producer=successor))
        next_producer_id = NO_PRODUCER
        if request.flow and one.is_epoch_exhausted:
            next_producer_id = request.spare_producer_id
            if next_producer_id == NO_PRODUCER:
                error = ErrorCode.CONCURRENT_TRANSACTIONS
                return _answered(token, EndAnswer(error=error))
        self.ended["commit" if request.is_commit else "abort"] += 1
        one.end(request.is_commit, request.flow, next_producer_id, now)
        return self._ended(one, now, TransactionAnswer(token, EndAnswer(producer=one.successor)))

    # -- markers and time ---------------------------------------------------------------------

    def markers_written(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Iterable[TopicPartition],
        now: Moment,
    ) -> TransactionEffects:
        """`partitions` have the markers of `producer`, or no longer need them."""
        one = self._transactions.get(transactional_id)
        if one is None or not one.state.is_ending or one.producer != producer:
            return NOTHING
        one.unmarked.difference_update(partitions)
        if one.unmarked:
            return NOTHING
        one.complete(now)
        return TransactionEffects((one.record(),))

    def next_deadline(self) -> float | None:
        """When `tick` is due, in monotonic seconds; None: never."""
        while self._timeouts and not self._is_running(*self._timeouts[0][1:]):
            heapq.heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else None

    def tick(self, now: Moment) -> TransactionEffects:
        """Aborts the transactions that timed out."""
        effects = NOTHING
        while self._timeouts and self._timeouts[0][0] <= now.monotonic:
            _, transactional_id, number = heapq.heappop(self._timeouts)
            if self._is_running(transactional_id, number):
                self.ended["timeout"] += 1
                aborted = self._fence(self._transactions[transactional_id], now)
                effects = TransactionEffects(
                    effects.records + aborted.records, (), effects.markers + aborted.markers
                )
        return effects

    def cancel(self, token: int) -> None:
        """The client of `token` disconnected. Nothing is kept for it here."""

    def expire_ids(self, now: Moment) -> TransactionEffects:
        """Removes ids that are long unused and have no transaction in progress."""
        limit = now.monotonic - self._config.id_expiration_ms / 1000
        expired = [
            one.transactional_id
            for one in self._transactions.values()
            if one.updated.monotonic <= limit
            and one.state is not TransactionState.ONGOING
            and not one.state.is_ending
        ]
        for transactional_id in expired:
            del self._transactions[transactional_id]
        return TransactionEffects(
            tuple(tombstone(transactional_id) for transactional_id in expired)
        )

    def _fence(
        self, one: Transaction, now: Moment, *answers: TransactionAnswer
    ) -> TransactionEffects:
        one.fence(now)
        return self._ended(one, now, *answers)

    def _ended(
        self, one: Transaction, now: Moment, *answers: TransactionAnswer
    ) -> TransactionEffects:
        if one.unmarked:
            return TransactionEffects((one.record(),), answers, (one.markers(),))
        one.complete(now)
        return TransactionEffects((one.record(),), answers)

    def _start_timeout(self, one: Transaction, now: Moment, timeout_ms: int) -> None:
        deadline = now.monotonic + timeout_ms / 1000
        heapq.heappush(self._timeouts, (deadline, one.transactional_id, one.number))

    def _is_running(self, transactional_id: str, number: int) -> bool:
        one = self._transactions.get(transactional_id)
        return one is not None and one.state is TransactionState.ONGOING and one.number == number

    # -- views --------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> DescribedTransaction:
        if not transactional_id:
            return DescribedTransaction(transactional_id, ErrorCode.INVALID_REQUEST)
        one = self._transactions.get(transactional_id)
        if one is None:
            return DescribedTransaction(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
        return one.describe()

    def list_transactions(
        self,
        states: Collection[str],
        producer_ids: Collection[int],
        longer_than_ms: int,
        now_ms: TimestampMs,
    ) -> list[DescribedTransaction]:
        """The transactions that match every filter; an empty filter matches all."""
        return [
            one.describe()
            for one in self._transactions.values()
            if (not states or one.state.title in states)
            and (not producer_ids or one.producer.producer_id in producer_ids)
            and (longer_than_ms < 0 or _runs_longer(one, longer_than_ms, now_ms))
        ]

    def counts_by_state(self) -> dict[TransactionState, int]:
        counts = Counter(one.state for one in self._transactions.values())
        return {state: counts[state] for state in TransactionState}

    def oldest_started_ms(self) -> TimestampMs | None:
        """When the oldest open transaction began; None if there is none."""
        ongoing = TransactionState.ONGOING
        started = (one.started_ms for one in self._transactions.values() if one.state is ongoing)
        return min(started, default=None)

    def __len__(self) -> int:
        return len(self._transactions)


_CONCURRENT_INIT = InitAnswer(error=ErrorCode.CONCURRENT_TRANSACTIONS)


def _answered(token: int, value: AnswerValue) -> TransactionEffects:
    return TransactionEffects((), (TransactionAnswer(token, value),))


def _may_init(one: Transaction, known: ProducerIdentity) -> bool:
    """Whether the identity that a producer sent (KIP-360) is, or just was, that of the id.

    Kafka checks the epoch only when no transaction is in progress, so there a zombie can abort its
    successor's transaction; here it cannot.
    """
    if known in (NOBODY, one.producer) or one.producer.epoch == NO_PRODUCER_EPOCH:
        return True
    # The answer with the new epoch or the new producer id may have been lost; but not if the
    # producer has begun a transaction with it.
    is_before = known.epoch == one.last_epoch and one.last_epoch != NO_PRODUCER_EPOCH
    ids = (one.producer.producer_id, one.previous_producer_id)
    return is_before and known.producer_id in ids and one.state is not TransactionState.ONGOING


def _partitions_error(one: Transaction | None, request: PartitionsRequest) -> ErrorCode:
    """Why the partitions cannot be added or verified."""
    if not request.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if one is None or one.producer.producer_id != request.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if one.producer.epoch != request.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if one.state.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.NONE


def _runs_longer(one: Transaction, longer_than_ms: int, now_ms: TimestampMs) -> bool:
    return one.started_ms >= 0 and now_ms - one.started_ms > longer_than_ms


_CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
_INVALID = ErrorCode.INVALID_TXN_STATE


def judge_end(one: Transaction, request: EndRequest) -> ErrorCode | None:
    """Whether an EndTxn ends the transaction, is a retry, or is too late.

    Returns None to end the transaction now, NONE for a retry that finds it ended, else the error.

    In the old flow the producer's epoch is the same from one transaction to the next, so only the
    state identifies a retry. In the new flow (KIP-890) every end bumps the epoch: an EndTxn with the
    previous epoch is a retry, one with the current epoch belongs to the next transaction, any other
    is fenced.
    """
    if request.flow >= NEW_FLOW:
        return _judge_new(one, request)
    if one.producer.producer_id != request.producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if one.producer.epoch != request.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    if one.state is TransactionState.ONGOING:
        return None
    return _judge_retry(one, is_commit=request.is_commit)


def _judge_new(one: Transaction, request: EndRequest) -> ErrorCode | None:
    producer_id, epoch = request.producer
    is_next_id = (
        one.previous_producer_id == producer_id
        and epoch == EPOCH_EXHAUSTED
        and one.producer.epoch == 0
    )
    if one.producer.producer_id != producer_id and not is_next_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_retry = is_next_id or one.producer.epoch == epoch + 1
    is_current = one.producer.epoch == epoch and one.producer.producer_id == producer_id
    match one.state:
        case TransactionState.ONGOING:
            return None if is_current else ErrorCode.PRODUCER_FENCED
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            if not is_retry:
                return ErrorCode.PRODUCER_FENCED
        case TransactionState.EMPTY:
            if not is_current:
                return ErrorCode.PRODUCER_FENCED
            return _INVALID if request.is_commit else None
        case _:
            if not is_retry and not is_current:
                return ErrorCode.PRODUCER_FENCED
            if is_current and not is_retry:
                # Nothing of this transaction arrived: there is nothing to commit, but an abort
                # fences what may still arrive.
                return _INVALID if request.is_commit else None
    return _judge_retry(one, is_commit=request.is_commit)


def _judge_retry(one: Transaction, *, is_commit: bool) -> ErrorCode:
    """The transaction was ended before; a different end is an error."""
    match one.state:
        case TransactionState.PREPARE_COMMIT:
            return _CONCURRENT if is_commit else _INVALID
        case TransactionState.PREPARE_ABORT:
            return _INVALID if is_commit else _CONCURRENT
        case TransactionState.COMPLETE_COMMIT:
            return ErrorCode.NONE if is_commit else _INVALID
        case TransactionState.COMPLETE_ABORT:
            return _INVALID if is_commit else ErrorCode.NONE
        case _:
            return _INVALID
