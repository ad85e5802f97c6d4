"""kcat from Debian: an old librdkafka (2.0.2) as thousands of shell scripts use it."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import pytest
from tests.conformance.clients import Client, Message, open_client
from tests.conformance.conftest import Topics

pytestmark = pytest.mark.skipif(
    shutil.which("kcat") is None,
    reason="kcat is missing: tools/setup-clients, or apt install kcat",
)


@pytest.fixture
def bystander(bootstrap: str) -> Client:
    return open_client("confluent-kafka", bootstrap)


def kcat(bootstrap: str, *options: str, feed: bytes | None = None) -> str:
    outcome = subprocess.run(
        ["kcat", "-q", "-b", bootstrap, *options],
        input=feed,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr.decode()
    return outcome.stdout.decode()


def read(bootstrap: str, topic: str, *options: str) -> list[dict[str, Any]]:
    text = kcat(bootstrap, "-C", "-t", topic, "-e", "-J", *options)
    return [json.loads(line) for line in text.splitlines()]


def test_lines_with_keys_and_headers_round_trip(bootstrap: str, topic: str) -> None:
    kcat(
        bootstrap, "-P", "-t", topic, "-K", ":", "-H", "a=1", "-H", "a=2", feed=b"k1:one\nk2:two\n"
    )
    got = read(bootstrap, topic, "-o", "beginning")
    assert [(r["offset"], r["key"], r["payload"]) for r in got] == [
        (0, "k1", "one"),
        (1, "k2", "two"),
    ]
    assert got[0]["headers"] == ["a", "1", "a", "2"]


def test_empty_values_become_null_on_request(bootstrap: str, topic: str) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-K", ":", "-Z", feed=b"k:\n")
    (got,) = read(bootstrap, topic)
    assert (got["key"], got["payload"]) == ("k", None)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_codec_round_trip(bootstrap: str, topic: str, codec: str) -> None:
    feed = b"".join(b"line %d\n" % index for index in range(500))
    kcat(bootstrap, "-P", "-t", topic, "-z", codec, feed=feed)
    assert [r["payload"] for r in read(bootstrap, topic)] == [f"line {n}" for n in range(500)]


def test_offsets_and_tails(bootstrap: str, topic: str, bystander: Client) -> None:
    bystander.produce(topic, [Message(b"%d" % index) for index in range(20)])
    assert [r["offset"] for r in read(bootstrap, topic, "-o", "15")] == [15, 16, 17, 18, 19]
    assert [r["offset"] for r in read(bootstrap, topic, "-o", "-3")] == [17, 18, 19]
    assert [r["offset"] for r in read(bootstrap, topic, "-o", "beginning", "-c", "2")] == [0, 1]


def test_from_and_until_a_time(bootstrap: str, topic: str, bystander: Client) -> None:
    base = 1_700_000_000_000
    bystander.produce(
        topic, [Message(b"%d" % index, timestamp_ms=base + 10 * index) for index in range(10)]
    )
    got = read(bootstrap, topic, "-o", f"s@{base + 25}", "-o", f"e@{base + 65}")
    assert [r["offset"] for r in got] == [3, 4, 5, 6]
    asked = kcat(bootstrap, "-Q", "-t", f"{topic}:0:{base + 41}")
    assert asked.strip() == f"{topic} [0] offset 5"


def test_group_consumes_everything_and_resumes(
    bootstrap: str, topics: Topics, group: str, bystander: Client
) -> None:
    topic = topics.create(partitions=2)
    bystander.produce(topic, [Message(b"%d" % index, partition=index % 2) for index in range(10)])

    def in_group(count: int) -> list[str]:
        options = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-c"]
        text = kcat(bootstrap, *options, str(count), "-f", "%s\n", "-G", group, topic)
        return sorted(text.split())

    assert in_group(10) == [str(n) for n in range(10)]
    bystander.produce(topic, [Message(b"new")])
    assert in_group(1) == ["new"]


def test_metadata_listing(bootstrap: str, topics: Topics) -> None:
    topic = topics.create(partitions=3)
    listing = json.loads(kcat(bootstrap, "-L", "-J", "-t", topic))
    assert f"127.0.0.1:{bootstrap.rpartition(':')[2]}" in {b["name"] for b in listing["brokers"]}
    (row,) = listing["topics"]
    assert [p["partition"] for p in row["partitions"]] == [0, 1, 2]


def test_one_message_of_900_kilobytes(bootstrap: str, topic: str, bystander: Client) -> None:
    kcat(bootstrap, "-P", "-t", topic, "-D", "\x01", feed=b"y" * 900_000)
    (got,) = bystander.read_all(topic, 1)
    assert got.value == b"y" * 900_000
