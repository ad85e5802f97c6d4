"""Twelve compatibility errors of other brokers, one test each."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import Any

import pytest
from tests.conformance import batches
from tests.conformance.batches import Record, encode
from tests.conformance.conftest import Topics
from tests.conformance.fetching import fetch, list_offset, produce
from tests.conformance.raw import Disconnected, RawClient, build, entity, request_bytes
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode


def ranges(raw: RawClient) -> dict[int, tuple[int, int]]:
    rows = raw.call("api_versions", 0)["api_keys"]
    return {row["api_key"]: (row["min_version"], row["max_version"]) for row in rows}


def test_trap_1_produce_is_advertised_from_0_yet_refused_below_3(
    bootstrap: str, raw: RawClient
) -> None:
    assert ranges(raw)[0][0] == 0
    for version in (0, 1, 2):
        with RawClient(bootstrap) as old:
            old.send_frame(
                struct.pack(">hhih", 0, version, 1, -1) + struct.pack(">hii", 1, 1000, 0)
            )
            with pytest.raises(Disconnected):
                old.receive_frame()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is missing: apt install kcat")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_trap_1_old_librdkafka_really_compresses(
    bootstrap: str, raw: RawClient, topic: str, codec: str
) -> None:
    # librdkafka before 2.11.1 silently sends uncompressed batches if Produce starts at version 3.
    subprocess.run(
        ["kcat", "-P", "-b", bootstrap, "-t", topic, "-p", "0", "-z", codec],
        input=b"compressible " * 100,
        check=True,
        timeout=30,
    )
    (stored,) = batches.split(fetch(raw, topic)["records"])
    assert batches.header(stored).codec == codec


def test_trap_2_every_requested_group_has_an_entry(raw: RawClient, group: str) -> None:
    # librdkafka aborts its process if one is missing.
    if 69 in ranges(raw):
        answer = raw.call("consumer_group_describe", 0, group_ids=[group, f"{group}-2"])
        assert {g["group_id"]: g["error_code"] for g in answer["groups"]} == {
            group: ErrorCode.GROUP_ID_NOT_FOUND,
            f"{group}-2": ErrorCode.GROUP_ID_NOT_FOUND,
        }
    answer = raw.call("describe_groups", 5, groups=[group, f"{group}-2"])
    assert {g["group_id"] for g in answer["groups"]} == {group, f"{group}-2"}


def test_trap_3_an_offset_found_by_time_has_its_timestamp(raw: RawClient, topic: str) -> None:
    # Java throws "Invalid negative timestamp" if an offset has none.
    produce(raw, topic, encode([Record(b"k", b"v", 1000), Record(b"k", b"v", 2000)]))
    for at in (0, 1000, 1500, -3):
        row = list_offset(raw, topic, at)
        assert row["offset"] >= 0
        assert row["timestamp"] >= 1000
    none = list_offset(raw, topic, 3000)
    assert (none["offset"], none["timestamp"]) == (-1, -1)


def test_trap_4_unsupported_api_versions_is_answered_in_version_0(bootstrap: str) -> None:
    with RawClient(bootstrap) as client:
        # Request header v2 and an empty body of an unknown version.
        client.send_frame(struct.pack(">hhih", 18, 99, 7, -1) + b"\x00\x01\x01\x00")
        answer = client.receive_frame()
        correlation_id, code, count = struct.unpack_from(">ihi", answer)
        assert (correlation_id, code) == (7, ErrorCode.UNSUPPORTED_VERSION)
        keys = {}
        for index in range(count):
            key, low, high = struct.unpack_from(">hhh", answer, 10 + 6 * index)
            keys[key] = (low, high)
        assert len(answer) == 10 + 6 * count
        # The client gets the supported range of this one API, and the connection stays open.
        low, high = keys[18]
        assert low == 0
        assert high >= 3
        assert client.call("api_versions", 0)["error_code"] == ErrorCode.NONE


def test_trap_4_api_versions_requires_a_well_formed_client_name(raw: RawClient) -> None:
    named = raw.call("api_versions", 3, client_software_name="raw", client_software_version="1.0")
    assert named["error_code"] == ErrorCode.NONE
    for name in ("", "two words"):
        answer = raw.call(
            "api_versions", 3, client_software_name=name, client_software_version="1.0"
        )
        assert answer["error_code"] == ErrorCode.INVALID_REQUEST


# (api key, oldest version) that a current client sends.
OLDEST_LIVE = {
    1: 4, 2: 1, 3: 0, 8: 2, 9: 1, 10: 0, 11: 0, 12: 0, 13: 0, 14: 0, 15: 0, 16: 0, 18: 0, 19: 2,
    20: 1, 21: 0, 22: 0, 23: 2, 32: 1, 33: 0, 35: 1, 37: 0, 42: 0, 44: 0, 47: 0, 60: 0, 75: 0,
}  # fmt: skip


@pytest.mark.parametrize(("api_key", "version"), OLDEST_LIVE.items())
def test_trap_5_old_versions_that_live_clients_send_are_offered(
    raw: RawClient, api_key: int, version: int
) -> None:
    low, high = ranges(raw)[api_key]
    assert low <= version <= high


def test_trap_6_ranges_make_us_a_kafka_of_4_3(raw: RawClient) -> None:
    # kafka-python infers the broker's release from these three and gates features by it.
    offered = ranges(raw)
    assert offered[35][1] >= 5
    assert offered[2][1] >= 11
    assert offered[0][1] >= 13


def test_trap_7_topics_are_created_through_metadata(raw: RawClient, topics: Topics) -> None:
    name = topics.name("auto")
    # Versions 0 to 3 have no flag and always permit creation.
    raw.call("metadata", 1, topics=[{"name": name}])

    def created() -> None:
        (row,) = raw.call("metadata", 1, topics=[{"name": name}])["topics"]
        assert row["error_code"] == ErrorCode.NONE

    eventually_passes(created)


def test_trap_8_fetch_in_the_middle_of_a_batch_returns_the_batch(
    raw: RawClient, topic: str
) -> None:
    for codec in ("none", "gzip"):
        produce(raw, topic, encode([Record(b"k", b"%d" % i) for i in range(10)], codec=codec))
    for offset in range(20):
        stored = batches.split(fetch(raw, topic, offset)["records"])
        assert batches.header(stored[0]).base_offset == offset // 10 * 10


def test_trap_9_commit_metadata_is_returned(raw: RawClient, topic: str, group: str) -> None:
    row: dict[str, Any] = {
        "partition_index": 0,
        "committed_offset": 3,
        "committed_metadata": "whät I was doing",
    }

    def committed() -> None:
        answer = raw.call(
            "offset_commit",
            7,
            group_id=group,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": [row]}],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NONE

    eventually_passes(committed)
    answer = raw.call(
        "offset_fetch", 5, group_id=group, topics=[{"name": topic, "partition_indexes": [0]}]
    )
    assert answer["topics"][0]["partitions"][0]["metadata"] == "whät I was doing"


def test_trap_9_half_bad_request_changes_nothing(raw: RawClient, topics: Topics) -> None:
    # Keyless record in the middle of a batch: refused by index, and nothing of it is stored.
    topic = topics.create(cleanup_policy="compact")
    answer = produce(raw, topic, encode([Record(b"k", b"v"), Record(None, b"v")]))
    assert answer["error_code"] == ErrorCode.INVALID_RECORD
    assert list_offset(raw, topic, -1)["offset"] == 0


def test_trap_10_telemetry_is_offered_as_a_pair_or_not_at_all(raw: RawClient) -> None:
    offered = ranges(raw)
    assert (71 in offered) == (72 in offered)


def test_trap_11_the_advertised_host_is_an_address_as_given(bootstrap: str, raw: RawClient) -> None:
    host = bootstrap.split(",")[0].rpartition(":")[0]
    if host != "127.0.0.1":
        pytest.skip(
            "another broker advertises the address of its own configuration: run without KAFKA"
        )
    (broker,) = raw.call("metadata", 12, topics=[])["brokers"]
    assert broker["host"] == "127.0.0.1"


def test_trap_12_offsets_carry_the_epoch_of_their_records(
    raw: RawClient, topic: str, group: str
) -> None:
    produce(raw, topic, encode([Record(b"k", b"v", 1000)]))
    epoch = list_offset(raw, topic, 1000)["leader_epoch"]
    assert epoch in (0, 1)  # the first one of Kafka, and of Raft
    (stored,) = batches.split(fetch(raw, topic)["records"])
    assert batches.header(stored).leader_epoch == epoch
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": epoch}

    def committed() -> None:
        answer = raw.call(
            "offset_commit",
            8,
            group_id=group,
            member_id="",
            generation_id_or_member_epoch=-1,
            topics=[{"name": topic, "partitions": [row]}],
        )
        assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NONE

    eventually_passes(committed)
    answer = raw.call("offset_fetch", 7, group_id=group, topics=None)
    assert answer["topics"][0]["partitions"][0]["committed_leader_epoch"] == epoch


def test_unsupported_version_of_another_api_closes_the_connection(bootstrap: str) -> None:
    for api_key, version in ((3, 99), (999, 0)):
        with RawClient(bootstrap) as client:
            client.send_frame(struct.pack(">hhih", api_key, version, 1, -1) + b"\x00")
            with pytest.raises(Disconnected):
                client.receive_frame()


@pytest.mark.parametrize(
    ("api", "version"),
    [("metadata", 1), ("metadata", 12), ("list_offsets", 7), ("produce", 3), ("produce", 9)],
)
def test_bytes_after_a_request_are_ignored(
    raw: RawClient, topic: str, api: str, version: int
) -> None:
    # librdkafka 2.16 sends some with Metadata v13, and Kafka ignores them.
    records = encode([Record(b"k", b"v")])
    row: dict[str, Any] = {"partition_index": 0, "timestamp": -1}
    values: dict[str, dict[str, Any]] = {
        "metadata": {"topics": ()},
        "list_offsets": {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]},
        "produce": {
            "acks": -1,
            "timeout": 10_000,
            "topic_data": [
                {"name": topic, "partition_data": [{"index": 0, "records": records}]},
            ],
        },
    }
    request = build(entity(api, version, "request"), values[api])
    raw.send_frame(request_bytes(request, 1, "raw") + b"abc")
    raw.receive((api, version, 1))
    assert list_offset(raw, topic, -1)["offset"] == (1 if api == "produce" else 0)
