"""The commands of `kafkaesque pipeline`. What they do is tested in operate/test_pipeline.py."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kafkaesque.cli.pipeline import pipeline
from kafkaesque.pipeline import jars
from kafkaesque.pipeline.paths import PipelineDirectory


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(pipeline, words)
    return result.exit_code, result.output


def test_doctor_reports_all_findings(environment, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = invoke("doctor", "--json")
    findings = {item["what"]: item for item in json.loads(output)["findings"]}
    assert set(findings) == {"java", "packages", "connector jars", "decoder", "engines"}
    assert (code == 1) == any(item["state"] == "fail" for item in findings.values())


def test_doctor_without_java_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaesque.pipeline.java.find_spec", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    _, output = invoke("doctor")
    assert "apt install openjdk-17-jre-headless" in output


WITHOUT_SPARK = """
import sys
for name in ("pyspark", "pyarrow", "deltalake", "google.protobuf", "pandas", "numpy"):
    sys.modules[name] = None
from kafkaesque.cli.main import main
main()
"""


def run_without_spark(*words: str) -> tuple[int, str]:
    """A command in a process in which the packages of `[spark]` cannot be imported."""
    command = [sys.executable, "-c", WITHOUT_SPARK, "pipeline", *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize("command", [("run", "posts"), ("backfill", "posts"), ("replay", "posts")])
def test_commands_without_the_spark_packages_say_how_to_install_them(
    command: tuple[str, ...],
) -> None:
    code, output = run_without_spark(*command)
    assert code == 1
    assert "the pipeline needs pyspark" in output
    assert "pip install kafkaesque-platform[spark]" in output


def test_status_and_stop_do_not_need_spark(tmp_path: Path) -> None:
    code, output = run_without_spark("status", "--data", str(tmp_path), "--json")
    assert (code, json.loads(output)) == (0, {"queries": []})
    _, output = run_without_spark("stop", "posts", "--data", str(tmp_path))
    assert "Traceback" not in output


def test_missing_jars_are_reported_with_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(
        "pyspark",
        reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]",
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(jars.JARS_VARIABLE, raising=False)
    code, output = invoke("jars")
    assert code == 1
    assert "kafkaesque pipeline jars --fetch" in output


def test_status_of_a_query_that_was_killed_is_shown(tmp_path: Path) -> None:
    path = PipelineDirectory(tmp_path).status("posts")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"state": "running", "pid": 2**22 + 1, "batch": 4}))
    code, output = invoke("status", "--data", str(tmp_path), "--json")
    assert code == 0
    (row,) = json.loads(output)["queries"]
    assert (row["query"], row["state"], row["batch"]) == ("posts", "killed", 4)


def test_stop_waits_and_reports_what_has_stopped(tmp_path: Path) -> None:
    data = PipelineDirectory(tmp_path)
    path = data.status("posts")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"state": "running", "pid": os.getpid()}))
    ended = threading.Event()

    def obey() -> None:
        while not data.stop_request("posts").exists() and not ended.wait(0.01):
            pass
        path.write_text(json.dumps({"state": "stopped"}))

    query = threading.Thread(target=obey)
    query.start()
    try:
        code, output = invoke("stop", "posts", "--data", str(tmp_path), "--json")
    finally:
        ended.set()
        query.join()
    assert (code, json.loads(output)) == (0, {"stopped": ["posts"]})


def test_stop_of_a_query_that_does_not_run_says_so(tmp_path: Path) -> None:
    code, output = invoke("stop", "posts", "--data", str(tmp_path))
    assert code == 1
    assert "query 'posts' is not running" in output


def test_invalid_time_is_a_usage_error(tmp_path: Path) -> None:
    words = ("backfill", "posts", "--from", "yesterday", "--data", str(tmp_path))
    code, output = invoke(*words)
    assert code == 2
    assert "'yesterday' is not an ISO time" in output


def test_unreachable_kafka_is_reported_before_spark_starts(tmp_path: Path) -> None:
    code, output = invoke("run", "posts", "-b", "127.0.0.1:1", "--data", str(tmp_path))
    assert code == 3
    assert "cannot reach 127.0.0.1:1" in output


@pytest.mark.usefixtures("spark")
def test_range_is_backfilled_beside_the_table_and_replayed_into_it(
    broker, topic, produce, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    common = ("-b", broker.bootstrap_servers, "--data", str(tmp_path), "--json")
    common = (*common, "--set", f"archive.topics={topic}")
    produce(topic, [{"value": b"x", "partition": i % 2} for i in range(8)])
    code, output = invoke("run", "archive", "--once", *common)
    assert code == 0, output
    archive = PipelineDirectory(tmp_path).table("archive")
    DeltaTable(archive).delete("offset = 2")

    code, output = invoke(
        *("backfill", "archive", "--from-offsets", json.dumps({topic: {"0": 1, "1": 1}})), *common
    )
    assert code == 0, output
    answer = last_document(output)
    assert (answer["rows"], answer["swapped"]) == ({"archive": 6}, False)
    assert Path(answer["directory"]).is_dir()
    assert offsets(archive) == [0, 0, 1, 1, 3, 3]

    code, output = invoke(
        *("replay", "archive", "--from", "2020-01-01", "--rows-max", "3", "--swap"), *common
    )
    assert code == 0, output
    answer = last_document(output)
    assert (answer["rows"], answer["swapped"]) == ({"archive": 8}, True)
    assert offsets(archive) == [0, 0, 1, 1, 2, 2, 3, 3]


def offsets(table: Path) -> list[int]:
    from deltalake import DeltaTable

    rows = DeltaTable(table).to_pyarrow_table(columns=["offset"]).to_pylist()
    return sorted(row["offset"] for row in rows)


def last_document(output: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(output.splitlines()[-1])
    return document
