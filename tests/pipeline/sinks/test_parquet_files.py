"""Reading Spark's Parquet output without its metadata would return rows of killed batches."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from kafkaesque.pipeline.errors import TableRefused
from kafkaesque.pipeline.sinks.parquet_files import METADATA, committed_files
from kafkaesque.pipeline.source.reading import read_stream


def entry(directory: Path, name: str) -> str:
    return json.dumps({"path": f"file://{directory}/{name}", "size": 1, "action": "add"})


def test_batches_after_the_last_compaction_are_included(tmp_path: Path) -> None:
    log = tmp_path / METADATA
    log.mkdir()
    lines = {
        "0": ["a"],
        "1.compact": ["a", "b with space"],
        "1": ["b"],
        "2": ["c"],
        "3": [],
        ".3.crc": ["x"],
    }
    for name, files in lines.items():
        text = "\n".join(["v1", *(entry(tmp_path, file) for file in files)])
        (log / name).write_text(text.replace(" with ", "%20with%20"))
    assert [path.name for path in committed_files(tmp_path)] == ["a", "b with space", "c"]


def test_directory_without_metadata_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match=METADATA):
        committed_files(tmp_path)


def test_file_of_a_killed_batch_is_not_read(spark, topic, produce, options, tmp_path) -> None:
    import pyarrow.parquet as pq

    produce(topic, [{"value": b"x", "partition": i % 2} for i in range(20)])
    frame = read_stream(spark, options(topic), checkpoint=tmp_path / "c")
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(tmp_path / "t"))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    files = committed_files(tmp_path / "t")
    shutil.copyfile(files[0], tmp_path / "t" / "part-orphan.parquet")
    rows = sum(pq.read_metadata(path).num_rows for path in committed_files(tmp_path / "t"))
    everything = sum(pq.read_metadata(path).num_rows for path in (tmp_path / "t").glob("*.parquet"))
    assert rows == 20 < everything
    assert spark.read.parquet(str(tmp_path / "t")).count() == 20
