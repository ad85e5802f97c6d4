"""Lists the committed files of Spark's Parquet sink: those that its `_spark_metadata` names.

A killed batch leaves files that belong to no batch. Spark reads the metadata and skips them; any
other reader would return their rows. Prefer Delta tables; this is for reading Parquet output without
Spark.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlparse

from kafkaesque.pipeline.errors import TableRefused

METADATA: Final = "_spark_metadata"
_COMPACT: Final = ".compact"
_VERSION: Final = "v1"


def committed_files(directory: Path) -> list[Path]:
    """The files of committed batches in order. Raises TableRefused if the directory is no such sink.

    The log has one file per batch, and every few batches a `.compact` file that repeats all before it
    (org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog).
    """
    log = directory / METADATA
    if not log.is_dir():
        raise TableRefused(f"{directory} was not written by Spark's Parquet sink: no {METADATA}")
    batches = {int(path.name): path for path in log.iterdir() if path.name.isdigit()}
    compacts = {
        int(path.name.removesuffix(_COMPACT)): path
        for path in log.iterdir()
        if path.name.endswith(_COMPACT) and path.name.removesuffix(_COMPACT).isdigit()
    }
    start = max(compacts, default=-1)
    sources = [compacts[start]] if start >= 0 else []
    sources += [batches[number] for number in sorted(batches) if number > start]
    return [path for source in sources for path in _entries(source)]


def _entries(source: Path) -> list[Path]:
    version, *lines = source.read_text().splitlines()
    if version != _VERSION:
        raise TableRefused(f"{source} has version {version}; only {_VERSION} is supported")
    entries = [json.loads(line) for line in lines]
    return [
        Path(unquote(urlparse(entry["path"]).path))
        for entry in entries
        if entry.get("action", "add") == "add"
    ]
