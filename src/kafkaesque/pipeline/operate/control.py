"""Status of queries and requests to stop them, across processes, through files. No Spark here."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import LATEST, Cluster, ClusterSettings, TopicMissing
from kafkaesque.pipeline.places import Places
from kafkaesque.pipeline.source.offsets import from_spark

_POLL_S = 0.1
ALIVE = ("running", "restarting")
"""States of a query that somebody looks after."""


def read_status(path: Path) -> dict[str, Any]:
    """The last status of a query; empty where there is none yet."""
    try:
        status: dict[str, Any] = json.loads(path.read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return status


def is_alive(pid: int | None) -> bool:
    if not pid:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def statuses(places: Places) -> list[dict[str, Any]]:
    """Every query that ever ran here. One whose process is gone without a word is `killed`."""
    found = []
    for path in sorted((places.root / "queries").glob("*/status.json")):
        status = read_status(path)
        if status.get("state") in ALIVE and not is_alive(status.get("pid")):
            status["state"] = "killed"
        found.append({**status, "query": path.parent.name})
    return found


def with_lag(status: Mapping[str, Any], settings: ClusterSettings) -> dict[str, Any]:
    """The status with the lag as of now rather than as of the last batch."""
    reached = from_spark(status.get("end_offsets") or {})
    cluster = Cluster(settings)
    try:
        latest = cluster.persist(
            "list offsets", lambda: cluster.list_offsets(dict.fromkeys(reached, LATEST))
        )
    except TopicMissing:
        return dict(status)
    finally:
        cluster.close()
    lag = sum(max(0, end - reached[partition]) for partition, end in latest.items())
    return {**status, "lag_records": lag}


def request_stop(places: Places, name: str, timeout_s: float) -> None:
    """Ask a query to stop and wait until it has. PipelineError if it does not run, or does not stop."""
    status = read_status(places.status(name))
    if status.get("state") not in ALIVE or not is_alive(status.get("pid")):
        raise PipelineError(f"query '{name}' is not running")
    request = places.stop_request(name)
    request.touch()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        current = read_status(places.status(name))
        if current.get("state") not in ALIVE or not is_alive(current.get("pid")):
            return
        time.sleep(_POLL_S)
    raise PipelineError(
        f"query '{name}' has not stopped in {timeout_s:g} s",
        "it stops after the batch under way; wait, or end its process: nothing is lost by it",
    )
