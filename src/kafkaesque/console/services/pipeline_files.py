"""Spark queries, from the files that the pipeline keeps: docs/PIPELINE.md, "Operating"."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from kafkaesque.console.rules.view import Document

FEED_BYTES_READ_MAX: Final = 65_536
BATCHES_SHOWN: Final = 60


def read_queries(directory: Path | None) -> list[Document]:
    """Every query that has a status, with its last batches."""
    if directory is None:
        return []
    found = []
    for path in sorted((directory / "queries").glob("*/status.json")):
        status = _object(path)
        if status is not None:
            batches = read_feed(path.with_name("progress.jsonl"))
            found.append({**status, "query": status.get("query", path.parent.name),
                          "batches": batches})  # fmt: skip
    return found


def _object(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def read_feed(path: Path) -> list[Document]:
    """The last batches, oldest first: the tail of the file, without its first cut line."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - FEED_BYTES_READ_MAX))
            lines = file.read().splitlines()
    except OSError:
        return []
    if size > FEED_BYTES_READ_MAX:
        lines = lines[1:]
    batches = []
    for line in lines[-BATCHES_SHOWN:]:
        try:
            batch = json.loads(line)
        except ValueError:
            continue
        if isinstance(batch, dict):
            batches.append({name: batch.get(name) for name in
                            ("batch", "at", "input_rows", "rows_per_s", "duration_ms",
                             "lag_records", "watermark", "state_rows", "late_rows")})  # fmt: skip
    return batches
