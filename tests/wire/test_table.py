"""Message declarations: slots, defaults, constructors, version ranges."""

from __future__ import annotations

import pytest
from tests.wire.samples import ALL_MESSAGES

from kafkaesque.wire.api import REQUESTS, RESPONSES
from kafkaesque.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData
from kafkaesque.wire.messages.metadata import MetadataResponseTopic
from kafkaesque.wire.messages.produce import PartitionProduceResponse
from kafkaesque.wire.table import (
    NEVER,
    NO_UUID,
    Int32,
    Request,
    String,
    Struct,
    Versions,
    f,
    parse_versions,
)


class Inner(Struct):
    number: Int32 = f("0+")
    names: list[String] = f("1+", default=[])


class Outer(Request, key=999, versions="0-3", flexible="2+"):
    inner: Inner = f("0+")
    maybe: Inner | None = f("3+", nullable="3+", default=None)
    key: String = f("0-1", default="k")


@pytest.mark.parametrize(
    ("text", "versions"),
    [
        ("3+", Versions(3, 32767)),
        ("0-12", Versions(0, 12)),
        ("4", Versions(4, 4)),
        ("", NEVER),
    ],
)
def test_version_notation(text: str, versions: Versions) -> None:
    assert parse_versions(text) == versions


def test_version_range_is_inclusive_and_never_is_empty() -> None:
    assert [v for v in range(6) if v in Versions(2, 4)] == [2, 3, 4]
    assert 0 not in NEVER
    assert 1 not in NEVER


def test_fields_are_slots_and_instances_have_no_dict() -> None:
    inner = Inner(number=1)

    assert not hasattr(inner, "__dict__")
    with pytest.raises(AttributeError):
        inner.nonsense = 1  # type: ignore[attr-defined]


def test_field_without_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="number"):
        Inner()  # type: ignore[call-arg]


def test_list_default_is_new_for_each_instance() -> None:
    first, second = Inner(number=1), Inner(number=2)
    first.names.append("x")

    assert second.names == []


def test_class_facts_do_not_hide_a_field_of_the_same_name() -> None:
    outer = Outer(inner=Inner(number=1))

    assert outer.key == "k"
    assert (Outer.API_KEY, Outer.VERSIONS, Outer.FLEXIBLE_SINCE) == (999, (0, 3), 2)


def test_table_of_a_class_names_types_ranges_and_defaults() -> None:
    inner, maybe, key = Outer.fields

    assert (inner.struct, inner.is_array, inner.required) == (Inner, False, True)
    assert (maybe.nullable, maybe.default) == (Versions(3, 32767), None)
    assert (key.scalar, key.versions, key.default) == ("String", Versions(0, 1), "k")


def test_equality_is_by_class_and_value() -> None:
    assert Inner(number=1) == Inner(number=1, names=[])
    assert Inner(number=1) != Inner(number=2)
    assert Inner(number=1) != Outer(inner=Inner(number=1))
    assert repr(Inner(number=1)) == "Inner(number=1, names=[])"


def test_defaults_are_those_of_kafkas_schema() -> None:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    topic = MetadataResponseTopic(error_code=0, name="t", partitions=[])
    answer = PartitionProduceResponse(index=0, error_code=0, base_offset=0)

    assert (partition.current_leader_epoch, partition.log_start_offset) == (-1, -1)
    assert partition.high_watermark == 2**63 - 1
    assert (request.max_bytes, request.session_epoch, request.replica_id) == (0x7FFFFFFF, -1, -1)
    assert (topic.topic_id, topic.topic_authorized_operations) == (NO_UUID, -(2**31))
    assert (answer.log_append_time_ms, answer.error_message, answer.current_leader) == (
        -1,
        None,
        None,
    )


def test_every_required_field_is_in_every_version_of_its_message() -> None:
    for cls in ALL_MESSAGES:
        for field in cls.fields:
            if field.required:
                assert field.versions.low <= cls.VERSIONS.low, (cls, field)
                assert field.versions.high >= cls.VERSIONS.high, (cls, field)


def test_request_and_response_of_an_api_have_the_same_versions() -> None:
    assert REQUESTS.keys() == RESPONSES.keys()
    for key, request in REQUESTS.items():
        response = RESPONSES[key]
        assert request.VERSIONS == response.VERSIONS
        assert request.FLEXIBLE_SINCE == response.FLEXIBLE_SINCE


def test_constructor_is_compiled_once_per_class() -> None:
    PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=0,
        aborted_transactions=None,
        records=None,
    )

    assert PartitionData.__init__ is not Struct.__init__
