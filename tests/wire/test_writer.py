"""What a writer emits: few buffers, uncopied records, no tagged fields with defaults."""

from __future__ import annotations

import pytest

from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.bounds import LocalProtocolError
from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.messages.delete_groups import DeleteGroupsRequest
from kafkaesque.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
)
from kafkaesque.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
    SnapshotId,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def partition(
    records: memoryview | None,
    *,
    current_leader: LeaderIdAndEpoch | None = None,
    snapshot_id: SnapshotId | None = None,
) -> PartitionData:
    return PartitionData(
        partition_index=1,
        error_code=ErrorCode.NONE,
        high_watermark=10,
        aborted_transactions=None,
        records=records,
        current_leader=current_leader,
        snapshot_id=snapshot_id,
    )


def fetched(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=list(partitions))])


@pytest.mark.parametrize("version", [4, 12])
def test_records_go_out_as_the_very_same_buffer(version: int) -> None:
    first, second = memoryview(b"first batch"), memoryview(b"second")

    buffers = encode(fetched(partition(first), partition(second)), version)

    assert buffers[1] is first
    assert buffers[3] is second
    assert all(type(buffer) is bytes for buffer in buffers[::2])


@pytest.mark.parametrize("version", [4, 12])
def test_empty_or_null_records_do_not_cut_the_message(version: int) -> None:
    buffers = encode(fetched(partition(None), partition(memoryview(b""))), version)

    assert len(buffers) == 1
    back = decode(FetchResponse, memoryview(buffers[0]), version).responses[0].partitions
    assert back[0].records is None
    assert back[1].records == memoryview(b"")


def test_message_without_fields_in_a_version_is_one_empty_buffer() -> None:
    assert encode(ApiVersionsRequest(), 0) == [b""]


def test_tagged_field_at_its_default_is_left_out() -> None:
    plain = encode(fetched(partition(None)), 12)
    defaulted = encode(fetched(partition(None, current_leader=LeaderIdAndEpoch())), 12)

    assert plain == defaulted


def test_tagged_fields_are_written_by_ascending_tag() -> None:
    full = partition(
        None,
        current_leader=LeaderIdAndEpoch(leader_id=5, leader_epoch=6),
        snapshot_id=SnapshotId(end_offset=7, epoch=8),
    )

    (data,) = encode(fetched(full), 12)

    leader, snapshot = b"\x01\x09" + b"\0\0\0\x05\0\0\0\x06\0", b"\x02\x0d" + b"\0" * 7 + b"\x07"
    assert isinstance(data, bytes)
    assert b"\x02" + leader + snapshot in data


def test_null_where_the_version_does_not_allow_it_names_the_field() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=None)])

    assert encode(request, 10)
    with pytest.raises(LocalProtocolError, match=r"MetadataRequest v9: topics\[0\]\.name is null"):
        encode(request, 9)


def test_null_array_where_the_version_does_not_allow_it_names_the_field() -> None:
    with pytest.raises(LocalProtocolError, match="topics is null"):
        encode(MetadataRequest(topics=None), 0)


def test_null_in_a_tagged_array_names_the_field() -> None:
    response = ApiVersionsResponse(error_code=0, api_keys=[])
    response.finalized_features = None  # type: ignore[assignment]

    with pytest.raises(LocalProtocolError, match="finalized_features is null"):
        encode(response, 3)
    assert encode(response, 2)


def test_null_deep_inside_is_found() -> None:
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name="t", partitions=[partition])
    request = OffsetCommitRequest(group_id="g", member_id="", topics=[topic])
    assert encode(request, 8)
    partition.partition_index = None  # type: ignore[assignment]

    with pytest.raises(LocalProtocolError, match=r"topics\[0\]\.partitions\[0\]\.partition_index"):
        encode(request, 8)


def test_null_among_the_elements_of_an_array_is_found() -> None:
    request = DeleteGroupsRequest(groups_names=["a", None])  # type: ignore[list-item]

    with pytest.raises(LocalProtocolError, match=r"groups_names\[1\] is null"):
        encode(request, 2)


@pytest.mark.parametrize("version", [4, 12])
def test_number_out_of_range_is_our_own_error(version: int) -> None:
    response = fetched(partition(None))
    response.throttle_time_ms = 2**31

    with pytest.raises(LocalProtocolError, match="FetchResponse"):
        encode(response, version)


@pytest.mark.parametrize("version", [4, 12])
def test_string_that_no_peer_may_read_is_our_own_error(version: int) -> None:
    response = fetched(partition(None))
    response.responses[0].topic = "x" * 32768

    with pytest.raises(LocalProtocolError, match="FetchResponse"):
        encode(response, version)


def test_nullable_struct_is_marked_by_one_byte() -> None:
    none = DescribeTopicPartitionsRequest(topics=[])
    some = DescribeTopicPartitionsRequest(
        topics=[], cursor=Cursor(topic_name="t", partition_index=3)
    )

    assert encode(none, 0) == [b"\x01" + (2000).to_bytes(4, "big") + b"\xff" + b"\0"]
    assert b"".join(encode(some, 0)).endswith(b"\x01\x02t\0\0\0\x03\0\0")
