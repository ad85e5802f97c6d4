"""Where a simulated node keeps its files, and what its partitions are called."""

from __future__ import annotations

from typing import Final

from kafkaesque.model.ids import GroupId

JOURNAL_PATH: Final = "/data/raft"
TOPIC: Final = "topic"
"""Every partition is one of it, numbered by its group."""


def log_path(group: GroupId) -> str:
    return f"/data/groups/{group}"
