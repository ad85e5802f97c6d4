from __future__ import annotations

import pytest

from kafkaesque.admin.full_disks import describe_problem
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.limits import MIB
from kafkaesque.wire.messages.describe_log_dirs import DescribeLogDirsResult


def directory(usable_bytes: int, error_code: int = 0) -> DescribeLogDirsResult:
    return DescribeLogDirsResult(
        error_code=error_code, log_dir="/data", topics=[], usable_bytes=usable_bytes
    )


@pytest.mark.parametrize(
    "healthy",
    [directory(100 * MIB), directory(-1)],
    ids=["room", "a Kafka before 3.3 does not report it"],
)
def test_a_disk_with_room_has_no_problem(healthy: DescribeLogDirsResult) -> None:
    assert describe_problem(3, healthy) is None


def test_a_full_disk_is_named_with_its_free_space() -> None:
    problem = describe_problem(3, directory(4096))
    assert problem is not None
    assert problem.startswith("broker 3 has 4.0 KiB left on its disk (/data)")
    assert "KAFKA_STORAGE_ERROR" in problem


def test_a_failed_disk_is_named_with_its_error() -> None:
    problem = describe_problem(3, directory(-1, error_code=ErrorCode.KAFKA_STORAGE_ERROR))
    assert problem == "broker 3 cannot use its disk (/data): KAFKA_STORAGE_ERROR; see its log"
