"""A transactional producer of our own, with both flows and one request at a time.

Client libraries choose the flow and retry as they like. This one is explicit: a request without an answer
in time is sent again over a new connection until there is one. OLD_FLOW adds partitions first and keeps
its epoch; NEW_FLOW (KIP-890) does neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kafkaesque.broker.transactions.types import NEW_FLOW, NOBODY
from kafkaesque.client.wire.address import parse_broker_address
from kafkaesque.client.wire.blocking import BrokerClient
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, ProducerIdentity, TimestampMs
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kafkaesque.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafkaesque.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)
Place = tuple[str, int]

TRANSACTION_KEY: Final = 1
TIMEOUT_MS: Final = 30_000
GIVE_UP_S: Final = 60.0
PAUSE_S: Final = 0.02
_PRODUCE_VERSIONS: Final = {True: 12, False: 11}
_END_VERSIONS: Final = {True: 5, False: 3}
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class ProduceRefused(Exception):
    """The broker refused a request; a retry would not help."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


class Unserved(Exception):
    """There was no usable answer for GIVE_UP_S."""


class WireProducer:
    """Not thread-safe. Call `init`, then for each transaction `send` and `end`."""

    def __init__(
        self, bootstrap: Sequence[str], transactional_id: str, flow: int, timeout_s: float
    ) -> None:
        self.transactional_id = transactional_id
        self._is_new = flow >= NEW_FLOW
        self._bootstrap = bootstrap
        self._timeout_s = timeout_s
        self._clients: dict[str, BrokerClient] = {}
        self._where: dict[Place | None, str] = {}
        """Addresses of leaders, and of the coordinator under None; removed when they may be outdated."""
        self._me = NOBODY
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self.retries = 0

    def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=TIMEOUT_MS
        )
        answer = self._request(None, request, 4, InitProducerIdResponse, lambda one: one.error_code)
        self._set_identity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    def send(self, place: Place, value: bytes) -> int:
        """Send one record; returns its offset."""
        if not self._is_new and place not in self._added:
            self._add(place)
        topic, partition = place
        sequence = self._sequences.get(place, 0)
        now_ms = TimestampMs(int(time.time() * 1000))
        batch = encode_batch(
            [Record(Offset(0), now_ms, None, value)],
            producer_id=self._me.producer_id,
            producer_epoch=self._me.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        rows = [PartitionProduceData(index=partition, records=memoryview(batch))]
        request = ProduceRequest(
            transactional_id=self.transactional_id,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=rows)],
        )
        version = _PRODUCE_VERSIONS[self._is_new]
        answer = self._request(place, request, version, ProduceResponse, _produce_code)
        self._sequences[place] = sequence + 1
        return answer.responses[0].partition_responses[0].base_offset

    def end(self, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self._me.producer_id,
            producer_epoch=self._me.epoch,
            committed=is_commit,
        )
        version = _END_VERSIONS[self._is_new]
        answer = self._request(None, request, version, EndTxnResponse, lambda one: one.error_code)
        self._added.clear()
        if self._is_new:
            self._set_identity(ProducerId(answer.producer_id), ProducerEpoch(answer.producer_epoch))

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    def _set_identity(self, producer_id: ProducerId, epoch: ProducerEpoch) -> None:
        self._me = ProducerIdentity(producer_id, epoch)
        self._sequences.clear()
        self._added.clear()

    def _add(self, place: Place) -> None:
        topic, partition = place
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self._me.producer_id,
            v3_and_below_producer_epoch=self._me.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[partition])],
        )
        self._request(None, request, 3, AddPartitionsToTxnResponse, _added_code)
        self._added.add(place)

    # -- requests ---------------------------------------------------------------------------------

    def _request(
        self,
        place: Place | None,
        request: Request,
        version: int,
        answer: type[R],
        code_of: Callable[[R], int],
    ) -> R:
        """Send a request until it is answered, over a new connection after each failure."""
        deadline = time.monotonic() + GIVE_UP_S
        while time.monotonic() < deadline:
            try:
                reply = self._client(place).call(request, answer, version)
            except OSError:
                self.retries += 1
                self._where.pop(place, None)
                continue
            code = ErrorCode(code_of(reply))
            if code is ErrorCode.NONE:
                return reply
            if code not in _TRY_AGAIN:
                raise ProduceRefused(code)
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._where.pop(place, None)
            time.sleep(PAUSE_S)
        raise Unserved(f"{type(request).__name__} of {self.transactional_id} was never served")

    def _client(self, place: Place | None) -> BrokerClient:
        address = self._where.get(place)
        if address is None:
            address = self._coordinator() if place is None else self._leader(place)
            self._where[place] = address
        return self._to(address)

    def _to(self, address: str) -> BrokerClient:
        if address not in self._clients:
            self._clients[address] = BrokerClient(
                parse_broker_address(address),
                timeout_s=self._timeout_s,
                client_id="kafkaesque-fault",
            )
        return self._clients[address]

    def _coordinator(self) -> str:
        request = FindCoordinatorRequest(
            key_type=TRANSACTION_KEY, coordinator_keys=[self.transactional_id]
        )
        for address in self._bootstrap:
            (found,) = self._to(address).call(request, FindCoordinatorResponse, 4).coordinators
            if found.error_code == ErrorCode.NONE:
                return f"{found.host}:{found.port}"
        raise ConnectionError("no broker returned the coordinator")

    def _leader(self, place: Place) -> str:
        topic, partition = place
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False
        )
        for address in self._bootstrap:
            answer = self._to(address).call(request, MetadataResponse, 9)
            brokers = {one.node_id: f"{one.host}:{one.port}" for one in answer.brokers}
            for row in answer.topics[0].partitions:
                if row.partition_index == partition and row.leader_id in brokers:
                    return brokers[row.leader_id]
        raise ConnectionError(f"{place} has no leader")


def _produce_code(answer: ProduceResponse) -> int:
    return answer.responses[0].partition_responses[0].error_code


def _added_code(answer: AddPartitionsToTxnResponse) -> int:
    topic = answer.results_by_topic_v3_and_below[0]
    return topic.results_by_partition[0].partition_error_code
