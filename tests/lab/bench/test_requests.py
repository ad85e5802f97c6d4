"""Pre-encoded requests of the load: valid batches, field positions, error detection."""

from __future__ import annotations

import pytest

from kafkaesque.lab.bench import requests
from kafkaesque.lab.bench.raw_load import LoadFailed
from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.batch import read_header, verify_crc
from kafkaesque.wire.api import decode_request_header
from kafkaesque.wire.codec import decode, encode_response_frame
from kafkaesque.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kafkaesque.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)


@pytest.mark.parametrize(
    ("record_bytes", "batch_bytes"), [(100, 0), (100, 16_384), (1000, 1_000_000)]
)
def test_batch_is_sound_and_near_its_wanted_size(record_bytes: int, batch_bytes: int) -> None:
    batch, count = requests.make_batch(record_bytes, batch_bytes)
    header = read_header(batch)
    verify_crc(batch, header)
    assert header.record_count == count
    if batch_bytes:
        assert 0.95 < len(batch) / batch_bytes < 1.02
    else:
        assert count == 1


def test_produce_frame_carries_the_batch_as_it_is() -> None:
    batch, _ = requests.make_batch(100, 0)
    frame = memoryview(requests.produce_frame("t", 3, batch, acks=-1))[4:]
    header = decode_request_header(frame)
    request = decode(ProduceRequest, frame, header.api_version, header.body_position)
    data = request.topic_data[0].partition_data[0]
    assert (request.acks, data.index, bytes(data.records or b"")) == (-1, 3, batch)


def test_fetch_offset_can_be_changed_in_the_frame() -> None:
    frame, position = requests.fetch_frame("t", 1, partition_bytes_max=1000)
    frame[position : position + 8] = (77).to_bytes(8)
    view = memoryview(frame)[4:]
    header = decode_request_header(view)
    request = decode(FetchRequest, view, header.api_version, header.body_position)
    wanted = request.topics[0].partitions[0]
    assert (wanted.partition, wanted.fetch_offset, wanted.partition_max_bytes) == (1, 77, 1000)


def fetch_answer(error_code: int, records: bytes) -> bytes:
    row = PartitionData(
        partition_index=0,
        error_code=error_code,
        high_watermark=5,
        aborted_transactions=None,
        records=memoryview(records),
    )
    answer = FetchResponse(responses=[FetchableTopicResponse(topic="stored", partitions=[row])])
    return b"".join(encode_response_frame(answer, requests.FETCH_VERSION, 1)[0])


def test_fetch_overhead_is_what_a_real_answer_has() -> None:
    records = bytes(20_000)
    answer = fetch_answer(0, records)
    assert len(answer) - len(records) == requests.fetch_overhead_bytes("stored")


def test_fetch_error_is_detected_in_the_header_of_an_answer() -> None:
    requests.check_fetched("stored", [fetch_answer(0, b"")[4:]])
    with pytest.raises(LoadFailed, match="error 1"):
        requests.check_fetched("stored", [fetch_answer(1, b"")[4:]])


def test_produce_error_is_detected() -> None:
    row = PartitionProduceResponse(
        index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, base_offset=-1
    )
    answer = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[row])])
    frame = b"".join(encode_response_frame(answer, requests.PRODUCE_VERSION, 1)[0])
    with pytest.raises(LoadFailed, match="error 6"):
        requests.check_produced([frame[4:]])
