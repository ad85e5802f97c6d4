from __future__ import annotations

import pytest

from kafkaesque.cli.render import Screen
from kafkaesque.cli.topic_view import show_descriptions


def test_a_partition_without_leader_shows_what_is_not_known(
    capsys: pytest.CaptureFixture[str],
) -> None:
    partition = {"partition": 0, "leader": None, "replicas": [1, 2], "isr": [], "earliest": None}
    topic = {
        "topic": "orders",
        "id": "AAAA",
        "internal": True,
        "partition_count": 1,
        "replication_factor": 2,
        "records": 0,
        "configs": {"a": "1", "b": "2"},
        "partitions": [partition],
    }
    show_descriptions(Screen(as_json=False), [topic])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "orders"
    assert "config      a=1" in lines
    assert "internal    yes" in lines
    assert lines[-1].split() == ["0", "-", "1,2", "-", "-", "-", "-"]
