"""Produce as the dispatcher calls it: error codes, rows, and waiting for replicas."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from tests.broker.server.conftest import MakeBroker
from tests.broker.server.handlers.test_storage_failures import full_disk
from tests.broker.server.local_broker import HANDLERS, LocalBroker, every_version

from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.server.call import Call, CloseConnection
from kafkaesque.broker.server.dispatch import Dispatcher
from kafkaesque.model.errors import ErrorCode, NotLeaderOrFollower
from kafkaesque.model.ids import Offset, ProducerEpoch, ProducerId, TimestampMs
from kafkaesque.records.batch import Codec, read_header, reseal
from kafkaesque.records.codec import Record, encode_batch
from kafkaesque.wire.codec import decode_response, encode_request_frame
from kafkaesque.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

NOW = 1_700_000_000_000


def sealed(*values: bytes, codec: Codec = Codec.NONE, key: bytes | None = b"k") -> bytearray:
    return encode_batch(
        [Record(Offset(0), TimestampMs(NOW), key, value) for value in values], codec=codec
    )


def produce(
    broker: LocalBroker,
    records: bytes | bytearray | None,
    *,
    version: int = 9,
    acks: int = 1,
    topic: str = "a",
    index: int = 0,
    timeout_ms: int = 10_000,
) -> PartitionProduceResponse:
    data = PartitionProduceData(
        index=index, records=None if records is None else memoryview(records)
    )
    named = TopicProduceData(
        name=topic,
        topic_id=broker.context.cluster.tables.by_name["a"].topic_id,
        partition_data=[data],
    )
    request = ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[named])
    row: PartitionProduceResponse = broker.ask(request, version).responses[0].partition_responses[0]
    return row


@pytest.fixture
def topic(broker: LocalBroker) -> LocalBroker:
    broker.create("a")
    return broker


@pytest.mark.parametrize("version", every_version(ProduceRequest))
@pytest.mark.parametrize("acks", [1, -1])
def test_batches_get_consecutive_offsets(topic: LocalBroker, version: int, acks: int) -> None:
    assert produce(topic, sealed(b"1", b"2"), version=version, acks=acks).base_offset == 0
    row = produce(topic, sealed(b"3"), version=version, acks=acks)
    assert (row.error_code, row.base_offset, row.log_append_time_ms) == (ErrorCode.NONE, 2, -1)


def test_acks_all_is_answered_after_the_sync(make_broker: MakeBroker) -> None:
    broker = make_broker(flush="always")
    broker.create("a")
    assert produce(broker, sealed(b"1"), acks=-1).error_code == ErrorCode.NONE
    assert broker.partition("a").log.synced_offset == 1


@pytest.mark.parametrize("codec", ["producer", "zstd"])
def test_commit_that_does_not_come_times_out(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    """Also if the batch was inspected first: its append is done, its commit is not."""
    broker = make_broker(flush="always")
    broker.create("a", compression_type=codec)
    monkeypatch.setattr(Flusher, "request_sync", lambda self, log: None)
    row = produce(broker, sealed(b"1"), acks=-1, timeout_ms=300)
    assert (row.error_code, row.base_offset) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert broker.partition("a").log_end_offset == 1


def test_commit_that_fails_in_the_turn_of_the_timeout_is_no_success(
    make_broker: MakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = make_broker(flush="always")
    broker.create("a")
    monkeypatch.setattr(Flusher, "request_sync", lambda self, log: None)
    data = PartitionProduceData(index=0, records=memoryview(sealed(b"1")))
    named = TopicProduceData(name="a", partition_data=[data])
    request = ProduceRequest(acks=-1, timeout_ms=0, topic_data=[named])

    async def story() -> Any:
        answer = asyncio.ensure_future(broker.answer(request, 9))
        await asyncio.sleep(0)  # the request has begun, and its timer is due
        gone = NotLeaderOrFollower("the partition moved")
        asyncio.get_running_loop().call_soon(broker.partition("a")._commit_waiters.fail_all, gone)
        return await answer

    (row,) = broker.run(story()).responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (None, ErrorCode.INVALID_RECORD),
        (b"", ErrorCode.INVALID_RECORD),
        (sealed(b"1") + sealed(b"2"), ErrorCode.INVALID_RECORD),
        (sealed(b"1")[:-1] + b"\xff", ErrorCode.CORRUPT_MESSAGE),
    ],
    ids=["null", "empty", "two batches", "checksum"],
)
def test_bad_records_are_refused_and_nothing_is_appended(
    topic: LocalBroker, records: bytes | None, code: ErrorCode
) -> None:
    row = produce(topic, records)
    assert (row.error_code, row.base_offset) == (code, -1)
    assert topic.partition("a").log_end_offset == 0


@pytest.mark.parametrize(("name", "index"), [("nowhere", 0), ("a", 1), ("a", -1)])
def test_unknown_partition_is_refused(topic: LocalBroker, name: str, index: int) -> None:
    row = produce(topic, sealed(b"1"), topic=name, index=index)
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_one_bad_partition_does_not_spoil_the_others(broker: LocalBroker) -> None:
    broker.create("a", 2)
    rows = [
        PartitionProduceData(index=index, records=memoryview(sealed(b"x"))) for index in (0, 7, 1)
    ]
    named = TopicProduceData(name="a", partition_data=rows)
    answer = broker.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named]), 9)
    codes = [row.error_code for row in answer.responses[0].partition_responses]
    assert codes == [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE]


@pytest.mark.parametrize("acks", [2, -2])
def test_wrong_acks_are_refused(topic: LocalBroker, acks: int) -> None:
    assert produce(topic, sealed(b"1"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def frame_of(broker: LocalBroker, records: bytearray, version: int, acks: int) -> memoryview:
    topic_id = broker.context.cluster.tables.by_name["a"].topic_id
    data = PartitionProduceData(index=0, records=memoryview(records))
    named = TopicProduceData(name="a", topic_id=topic_id, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=10_000, topic_data=[named])
    pieces = encode_request_frame(request, version, 5, "c")
    return memoryview(bytearray().join(pieces))[4:]


@pytest.mark.parametrize("version", every_version(ProduceRequest))
@pytest.mark.parametrize("acks", [1, -1])
def test_every_version_is_dispatched_answered_and_counted(
    topic: LocalBroker, version: int, acks: int
) -> None:
    dispatcher = Dispatcher(topic.context, HANDLERS)
    frame = frame_of(topic, sealed(b"1", b"2"), version, acks)
    produced_before = topic.context.stats.produced_records_total
    output, size_bytes, begun = dispatcher.serve(frame, "c", 0.0)
    assert (begun, size_bytes) == (None, len(b"".join(output)))
    answer = decode_response(ProduceResponse, memoryview(b"".join(output))[4:], version)
    (row,) = answer.responses[0].partition_responses
    assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 0)
    assert topic.context.stats.produced_records_total == produced_before + 2


def test_batch_that_the_disk_refuses_has_a_storage_error_whatever_its_producer_sent_before(
    topic: LocalBroker,
) -> None:
    # A second try would see a stamped batch, and a producer that was sent away before.
    assert produce(topic, sealed(b"1")).base_offset == 0
    data = encode_batch(
        [Record(Offset(0), TimestampMs(NOW), b"k", b"2")],
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        base_sequence=7,
    )
    with full_disk():
        refused = produce(topic, data)
    assert (refused.error_code, refused.base_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, -1)
    assert "cannot write" in (refused.error_message or "")
    assert topic.partition("a").log_end_offset == 1
    assert produce(topic, sealed(b"3")).base_offset == 1


@pytest.mark.parametrize("flush", ["never", "always"])
def test_only_batches_that_the_disk_refuses_are_counted_as_such(
    make_broker: MakeBroker, flush: str
) -> None:
    broker = make_broker(flush=flush)
    broker.create("a")
    stats, before = broker.context.stats, broker.context.clock.monotonic()
    assert produce(broker, b"").error_code == ErrorCode.INVALID_RECORD
    assert produce(broker, sealed(b"1"), acks=-1).error_code == ErrorCode.NONE
    assert stats.disk_refusals_total == 0
    assert stats.disk_refused_at < before
    with full_disk():
        for _ in range(2):
            refused = produce(broker, sealed(b"2"), acks=-1)
            assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert stats.disk_refusals_total == 2
    assert stats.disk_refused_at >= before


def test_zstd_needs_version_7(topic: LocalBroker) -> None:
    data = sealed(b"1", codec=Codec.ZSTD)
    refused = produce(topic, data, version=6)
    assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert produce(topic, data, version=7).error_code == ErrorCode.NONE


def test_transactional_batch_without_a_transactional_id_is_refused(topic: LocalBroker) -> None:
    data = encode_batch(
        [Record(Offset(0), TimestampMs(1), b"k", b"1")],
        producer_id=ProducerId(1),
        producer_epoch=ProducerEpoch(0),
        base_sequence=0,
        is_transactional=True,
    )
    assert produce(topic, data).error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_internal_topic_is_not_for_clients(broker: LocalBroker) -> None:
    broker.create("a")
    broker.create("__consumer_offsets")
    row = produce(broker, sealed(b"1"), topic="__consumer_offsets")
    assert row.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_compacted_topic_refuses_keyless_records_one_by_one(broker: LocalBroker) -> None:
    broker.create("a", cleanup_policy="compact")
    row = produce(broker, sealed(b"1", b"2", key=None))
    assert row.error_code == ErrorCode.INVALID_RECORD
    assert [item.batch_index for item in row.record_errors] == [0, 1]
    assert produce(broker, sealed(b"1")).base_offset == 0


def test_batches_are_stored_with_the_codec_of_the_topic(broker: LocalBroker) -> None:
    broker.create("a", compression_type="gzip")
    assert produce(broker, sealed(b"1" * 100), acks=-1).error_code == ErrorCode.NONE
    read = broker.partition("a").read(Offset(0), 10_000, at_least_one=True)
    assert read_header(read.records).codec == Codec.GZIP


def test_batch_over_the_limit_is_too_large(broker: LocalBroker) -> None:
    broker.create("a", max_message_bytes="200")
    assert produce(broker, sealed(b"x" * 300)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_future_timestamp_is_refused(topic: LocalBroker) -> None:
    data = sealed(b"1")
    struct.pack_into(">q", data, 35, 2**62)
    reseal(data, 0, len(data))
    assert produce(topic, data).error_code == ErrorCode.INVALID_TIMESTAMP


def test_acks_0_has_no_answer_and_its_failure_closes_the_connection(topic: LocalBroker) -> None:
    def call(name: str) -> object:
        data = PartitionProduceData(index=0, records=memoryview(sealed(b"1")))
        request = ProduceRequest(
            acks=0,
            timeout_ms=1000,
            topic_data=[TopicProduceData(name=name, partition_data=[data])],
        )
        return HANDLERS[0].handle(topic.context, request, Call(9, None, "127.0.0.1"))

    assert call("a") is None
    assert topic.partition("a").log_end_offset == 1
    with pytest.raises(CloseConnection):
        call("nowhere")
