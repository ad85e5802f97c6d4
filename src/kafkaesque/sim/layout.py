"""Where a simulated node keeps its files."""

from __future__ import annotations

from typing import Final

from kafkaesque.model.ids import GroupId

JOURNAL_PATH: Final = "/data/raft"


def log_path(group: GroupId) -> str:
    return f"/data/groups/{group}"
