"""The commands that need no Spark; `run` itself is `operate/test_pipeline.py`'s."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkaesque.cli.pipeline import pipeline
from kafkaesque.pipeline import jars
from kafkaesque.pipeline.places import Places


def invoke(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(pipeline, words)
    return result.exit_code, result.output


def test_doctor_tells_what_is_here(environment, monkeypatch: pytest.MonkeyPatch) -> None:
    code, output = invoke("doctor", "--json")
    findings = {item["what"]: item for item in json.loads(output)["findings"]}
    assert set(findings) == {"java", "packages", "connector jars", "decoder", "engines"}
    assert (code == 1) == any(item["state"] == "fail" for item in findings.values())


def test_doctor_without_java_names_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaesque.pipeline.java.find_spec", lambda _name: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    _, output = invoke("doctor")
    assert "apt install openjdk-17-jre-headless" in output


def test_jars_that_are_not_here_are_told_with_the_command_that_fetches_them(
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
    path = Places(tmp_path).status("posts")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"state": "running", "pid": 2**22 + 1, "batch": 4}))
    code, output = invoke("status", "--data", str(tmp_path), "--json")
    assert code == 0
    (row,) = json.loads(output)["queries"]
    assert (row["query"], row["state"], row["batch"]) == ("posts", "killed", 4)


def test_stop_of_a_query_that_does_not_run_says_so(tmp_path: Path) -> None:
    code, output = invoke("stop", "posts", "--data", str(tmp_path))
    assert code == 1
    assert "query 'posts' is not running" in output


def test_time_that_is_none_is_wrong_usage(tmp_path: Path) -> None:
    words = ("backfill", "posts", "--from", "yesterday", "--data", str(tmp_path))
    code, output = invoke(*words)
    assert code == 2
    assert "'yesterday' is no ISO time" in output


def test_kafka_out_of_reach_is_told_before_spark_starts(tmp_path: Path) -> None:
    code, output = invoke("run", "posts", "-b", "127.0.0.1:1", "--data", str(tmp_path))
    assert code == 3
    assert "cannot reach 127.0.0.1:1" in output
