"""Status files of queries and requests to stop them: how processes learn about each other.

A running query writes `status.json` and appends one line per batch to `progress.jsonl`
(`progress.py`). `kafkaesque pipeline status` and `stop` read and write these files from another
process, so nothing here imports Spark.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.kafka.cluster import LATEST, ClusterClient, ClusterSettings, TopicMissing
from kafkaesque.pipeline.paths import PipelineDirectory
from kafkaesque.pipeline.rules.offsets import from_spark

FEED_SIZE_BYTES_MAX = 4 << 20
"""A larger feed is renamed to `.1`, replacing the one before, and a new one is begun."""
ALIVE = ("running", "restarting")
"""States of a query that a process is responsible for."""
_POLL_S = 0.1


def write_status(path: Path, document: Mapping[str, Any]) -> None:
    """Replaces the file atomically. It is not synced: the next batch writes it again."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    content = {**document, "pid": os.getpid(), "written_ms": int(time.time() * 1000)}
    temporary.write_text(json.dumps(content))
    temporary.replace(path)


def append_feed(path: Path, document: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and path.stat().st_size > FEED_SIZE_BYTES_MAX:
        path.replace(path.with_suffix(".jsonl.1"))
    with path.open("a") as file:
        file.write(json.dumps(document) + "\n")


def read_status(path: Path) -> dict[str, Any]:
    """The last status of a query; empty if there is none yet."""
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


def statuses(data: PipelineDirectory) -> list[dict[str, Any]]:
    """The status of every query that ever ran here; `killed` if its process ended without recording it."""
    found = []
    for path in sorted((data.root / "queries").glob("*/status.json")):
        status = read_status(path)
        if status.get("state") in ALIVE and not is_alive(status.get("pid")):
            status["state"] = "killed"
        found.append({**status, "query": path.parent.name})
    return found


def with_lag(status: Mapping[str, Any], settings: ClusterSettings) -> dict[str, Any]:
    """The status with the current lag instead of the lag at the end of the last batch."""
    reached = from_spark(status.get("end_offsets") or {})
    cluster = ClusterClient(settings)
    try:
        latest = cluster.retry(
            "list offsets", lambda: cluster.list_offsets(dict.fromkeys(reached, LATEST))
        )
    except TopicMissing:
        return dict(status)
    finally:
        cluster.close()
    lag = sum(max(0, end - reached[partition]) for partition, end in latest.items())
    return {**status, "lag_records": lag}


def request_stop(data: PipelineDirectory, name: str, timeout_s: float) -> None:
    """Requests that a query stops and waits until it has.

    Raises PipelineError if the query does not run, or does not stop in time.
    """
    status = read_status(data.status(name))
    if status.get("state") not in ALIVE or not is_alive(status.get("pid")):
        raise PipelineError(f"query '{name}' is not running")
    request = data.stop_request(name)
    request.touch()
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        current = read_status(data.status(name))
        if current.get("state") not in ALIVE or not is_alive(current.get("pid")):
            return
        time.sleep(_POLL_S)
    raise PipelineError(
        f"query '{name}' has not stopped within {timeout_s:g} s",
        "it stops after the current batch; wait, or kill its process: no data is lost",
    )
