"""A full disk and a damaged one."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.stories.conftest import StartBroker
from tests.stories.test_crash import only_segment
from tests.stories.wire_client import WireClient

from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.batch import read_header
from kafkaesque.testing.broker_process import BrokerNotReady, BrokerProcess

MIB = 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 24 MiB."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root: run the tests as root to see a full disk")
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode != 0:
        pytest.skip(
            f"no tmpfs may be mounted: run with CAP_SYS_ADMIN ({done.stderr.decode().strip()})"
        )
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def page(broker: BrokerProcess, name: str) -> tuple[int, str]:
    """Status and text of a page of the broker's http listener."""
    try:
        with urllib.request.urlopen(f"http://{broker.http_address}/{name}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_full_disk_refuses_producers_and_recovers_when_space_is_free(
    small_disk: Path, start_broker: StartBroker
) -> None:
    broker = start_broker({"log.segment.bytes": 4 * MIB}, directory=small_disk)
    payload = os.urandom(100_000)
    acknowledged = 0
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        while (row := client.produce("t", [payload])).error_code == ErrorCode.NONE:
            assert row.base_offset == acknowledged
            acknowledged += 1
            assert acknowledged < 1000
        assert row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert page(broker, "healthz") == (200, "ok\n")
        status, text = page(broker, "readyz")
        assert status == 503
        assert "the disk refuses writes" in text
        assert "\nkafkaesque_log_refused_writes_total 1.0\n" in page(broker, "metrics")[1]
        # Nothing half-written is served, and all acknowledged records are there.
        assert [r.value for r in client.read_all("t")] == [payload] * acknowledged
        # Space becomes free: another file was removed.
        subprocess.run(["mount", "-o", "remount,size=48m", str(small_disk)], check=True)
        assert client.produce("t", [b"after"]).base_offset == acknowledged
        assert client.read_all("t")[-1].value == b"after"
    log = broker.log.read_text()
    assert log.count("records are rejected") == 1
    assert "accepts records again" in log
    broker.kill()
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert len(client.read_all("t")) == acknowledged + 1


def test_produce_command_reports_that_the_disk_is_full(
    small_disk: Path, start_broker: StartBroker
) -> None:
    broker = start_broker({"log.segment.bytes": 4 * MIB}, directory=small_disk)
    payload = os.urandom(100_000)
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        while client.produce("t", [payload]).error_code == ErrorCode.NONE:
            pass
    # librdkafka retries until the record expires, and then reports only the timeout.
    command = [sys.executable, "-m", "kafkaesque.cli.main", "produce", "t", "--timeout", "2"]
    outcome = subprocess.run(
        [*command, "-b", broker.bootstrap_servers],
        input="x" * 200_000,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert outcome.returncode == 1
    assert "_MSG_TIMED_OUT" in outcome.stderr
    assert "KAFKA_STORAGE_ERROR" in outcome.stderr
    assert f"left on its disk ({small_disk}" in outcome.stderr
    assert "did not answer" not in outcome.stderr


def test_damaged_batch_is_refused_with_its_place_and_its_neighbours_are_served(
    broker: BrokerProcess,
) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        for number in range(3):
            client.produce("t", [b"value %d" % number * 20])
    broker.stop()
    segment = only_segment(broker)
    data = bytearray(segment.read_bytes())
    third = len(data) // 3
    data[third + 100] ^= 0x10
    segment.write_bytes(data)
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        first = client.fetch("t", 0)
        assert first.error_code == ErrorCode.NONE
        assert first.records is not None
        assert len(first.records) == third
        assert client.fetch("t", 1).error_code == ErrorCode.CORRUPT_MESSAGE
        assert client.fetch("t", 2).error_code == ErrorCode.NONE
        assert client.produce("t", [b"more"]).base_offset == 3
    log = broker.log.read_text()
    assert str(segment) in log
    assert str(third) in log


@pytest.mark.parametrize(
    "position", [3, 8, 14, 16, 57], ids=["offset", "length", "epoch", "magic", "count"]
)
def test_damaged_header_keeps_no_other_batch_from_being_served_after_a_kill(
    broker: BrokerProcess, position: int
) -> None:
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("t")
        for number in range(3):
            client.produce("t", [b"value %d" % number * 20])
    broker.kill()
    segment = only_segment(broker)
    data = bytearray(segment.read_bytes())
    data[len(data) // 3 + position] ^= 0x10
    segment.write_bytes(data)
    broker.start()
    with WireClient(broker.bootstrap_servers) as client:
        assert [client.fetch("t", offset).error_code for offset in range(3)] == [
            *(ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.NONE)
        ]
        for offset in (0, 2):
            records = client.fetch("t", offset).records
            assert records is not None
            assert read_header(records).base_offset == offset
        client.create_topic("other")
        assert client.produce("other", [b"x"]).error_code == ErrorCode.NONE


def test_second_broker_on_the_same_data_is_refused_by_name(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    second = BrokerProcess(tmp_path)
    second.log = tmp_path / "second.log"
    with pytest.raises(BrokerNotReady, match=rf"in use by process {broker.pid}"):
        second.start()
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("still-there")


def test_data_of_another_node_is_refused(broker: BrokerProcess) -> None:
    broker.stop()
    broker.settings["node.id"] = 7
    with pytest.raises(BrokerNotReady, match="belongs to node 0"):
        broker.start()
