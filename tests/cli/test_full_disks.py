from __future__ import annotations

import pytest

from kafkaesque.cli.full_disks import describe_room
from kafkaesque.model.limits import MIB
from kafkaesque.wire.messages.describe_log_dirs import DescribeLogDirsResult


def directory(usable_bytes: int, error_code: int = 0) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=error_code, log_dir="/data", topics=[], usable_bytes=usable_bytes
    )


@pytest.mark.parametrize(
    "healthy",
    [directory(100 * MIB), directory(-1)],
    ids=["room", "a Kafka before 3.3, which does not say"],
)
def test_nothing_is_said_of_a_disk_with_room(healthy: DescribeLogDirsResult) -> None:
    assert describe_room(3, healthy) is None


def test_a_disk_without_room_is_named_with_what_it_has() -> None:
    told = describe_room(3, directory(4096))
    assert told is not None
    assert told.startswith("broker 3 has 4.0 KiB left on its disk (/data)")
    assert "KAFKA_STORAGE_ERROR" in told


def test_a_disk_that_the_broker_gave_up_is_named() -> None:
    told = describe_room(3, directory(-1, error_code=56))
    assert told == "broker 3 cannot use its disk (/data): KAFKA_STORAGE_ERROR; its log says why"
