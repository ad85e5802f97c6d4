"""The data directory: its lock, its owner and the clean-shutdown marker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.directory import DataDirectory, DataDirectoryInvalid, Meta
from kafkaesque.model.errors import DataDirectoryInUse
from kafkaesque.model.ids import TopicId

TOPIC = TopicId(UUID("12345678-1234-5678-1234-567812345678"))

HOLD = """
import sys
from kafkaesque.broker.storage.directory import DataDirectory
directory = DataDirectory(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_second_process_is_rejected_with_pid_path_and_advice(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with pytest.raises(DataDirectoryInUse) as raised:
            DataDirectory(tmp_path)
        text = str(raised.value)
        assert str(process.pid) in text
        assert str(tmp_path) in text
        assert "another data directory" in text
        process.kill()
        process.wait()
    directory = DataDirectory(tmp_path)
    assert (tmp_path / "lock").read_text() == f"{os.getpid()}\n"
    directory.close()


def test_directory_is_free_after_close(tmp_path: Path) -> None:
    for _ in range(2):
        directory = DataDirectory(tmp_path / "new" / "data")
        directory.close()
        directory.close()


def test_clean_shutdown_is_reported_once(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert not directory.was_clean()
    directory.mark_clean()
    directory.close()
    directory = DataDirectory(tmp_path)
    assert directory.was_clean()
    directory.close()
    directory = DataDirectory(tmp_path)
    assert not directory.was_clean()
    directory.close()


DISK = UUID(int=5)


def test_directory_belongs_to_one_node_of_one_cluster(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.meta is None
    directory.set_meta(Meta("cluster", 3, DISK, 0))
    directory.close()
    directory = DataDirectory(tmp_path)
    assert directory.meta == Meta("cluster", 3, DISK, 0)
    directory.set_meta(Meta("cluster", 3, DISK, 0))
    for other in (Meta("cluster", 4, DISK, 0), Meta("another", 3, DISK, 0)):
        with pytest.raises(DataDirectoryInvalid, match="belongs to node 3 of cluster cluster"):
            directory.set_meta(other)
    directory.close()


@pytest.mark.parametrize(
    "content",
    [b"{}", b"nonsense", b'{"cluster_id":"c","node_id":1,"format_version":99}'],
    ids=["empty", "nonsense", "future"],
)
def test_directory_that_cannot_be_understood_is_rejected_and_unlocked(
    tmp_path: Path, content: bytes
) -> None:
    durable_state.save(str(tmp_path / "meta"), content)
    for _ in range(2):
        with pytest.raises(DataDirectoryInvalid):
            DataDirectory(tmp_path)


def test_damaged_meta_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "meta").write_bytes(b"garbage that is long enough")
    with pytest.raises(DataDirectoryInvalid, match="meta"):
        DataDirectory(tmp_path)


def test_topics_and_partitions_are_found_by_id_and_number(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert directory.topic_ids() == []
    assert directory.partitions(TOPIC) == []
    for partition in (0, 10, 2):
        directory.log_path(TOPIC, partition).mkdir(parents=True)
    (tmp_path / "topics" / "not-a-topic").mkdir()
    (tmp_path / "topics" / str(TOPIC).upper()).mkdir(exist_ok=True)
    (tmp_path / "topics" / str(TOPIC) / "x").mkdir()
    assert directory.topic_ids() == [TOPIC]
    assert directory.partitions(TOPIC) == [0, 2, 10]
    assert directory.log_path(TOPIC, 2) == tmp_path / "topics" / str(TOPIC) / "2"
    directory.delete_topic(TOPIC)
    directory.delete_topic(TOPIC)
    assert directory.topic_ids() == []
    directory.close()
