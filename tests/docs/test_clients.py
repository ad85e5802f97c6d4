"""docs/guides/clients.md: every snippet runs exactly as written, if its tool is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from tests.conformance.clients import node
from tests.conformance.clients.model import Unavailable
from tests.docs.snippets import GUIDES, ROOT, Snippet, only, snippets

from kafkaesque.testing import Broker
from kafkaesque.testing.maven import JavaUnavailable, classpath, require_tool

GUIDE = GUIDES / "clients.md"
PYTHON = [snippet for snippet in snippets(GUIDE) if snippet.language == "python"]
GREETING = "gregor good morning"

pytestmark = [pytest.mark.story, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


def run(command: Sequence[str], broker: Broker, directory: Path) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | {"BOOTSTRAP": broker.bootstrap_servers},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("snippet", PYTHON, ids=[snippet.heading for snippet in PYTHON])
def test_python_client(snippet: Snippet, broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(snippet.text)
    assert run([sys.executable, "program.py"], broker, tmp_path).strip() == GREETING


def test_there_is_a_snippet_for_each_python_client() -> None:
    names = [snippet.heading.removeprefix("Python: ") for snippet in PYTHON]
    assert names == ["confluent-kafka", "kafka-python", "aiokafka"]


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is missing: run tools/setup-clients")
def test_kcat(broker: Broker, tmp_path: Path) -> None:
    script = only(GUIDE, "bash").text
    assert run(["bash", "-e", "-c", script], broker, tmp_path).strip() == GREETING


def test_java(broker: Broker, tmp_path: Path) -> None:
    try:
        jars = classpath(
            ("org.apache.kafka:kafka-clients:4.3.0", "com.fasterxml.jackson.core:jackson-databind:2.18.2",
             "org.slf4j:slf4j-nop:1.7.36")
        )  # fmt: skip
        java, javac = require_tool("java"), require_tool("javac")
    except JavaUnavailable as reason:
        pytest.skip(f"this client cannot be had here: {reason}")
    (tmp_path / "Greetings.java").write_text(only(GUIDE, "java").text)
    run([javac, "-cp", jars, "Greetings.java"], broker, tmp_path)
    path = os.pathsep.join((".", jars))
    assert run([java, "-Xmx256m", "-cp", path, "Greetings"], broker, tmp_path).strip() == GREETING


def test_go(broker: Broker, tmp_path: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("Go is missing: apt install golang-go, or put `go` on the PATH")
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "tests" / "conformance" / "go" / name, tmp_path)
    (tmp_path / "main.go").write_text(only(GUIDE, "go").text)
    built = subprocess.run(
        [go, "build", "-o", "greetings", "."],
        cwd=tmp_path,
        env=os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=mod -buildvcs=false"},
        capture_output=True,
        text=True,
    )
    if "dial tcp" in built.stderr:
        pytest.skip(
            f"franz-go is missing: give `go` a module proxy (GOPROXY): {built.stderr[-300:]}"
        )
    assert built.returncode == 0, built.stderr
    assert run(["./greetings"], broker, tmp_path).strip() == GREETING


def test_node(broker: Broker, tmp_path: Path) -> None:
    interpreter = shutil.which("node")
    if interpreter is None:
        pytest.skip("Node is missing: apt install nodejs npm, or put `node` on the PATH")
    try:
        installed = node.installed()
    except Unavailable as reason:
        pytest.skip(f"this client cannot be had here: {reason}")
    (tmp_path / "node_modules").symlink_to(installed / "node_modules")
    (tmp_path / "greetings.mjs").write_text(only(GUIDE, "js").text)
    said = run([interpreter, "greetings.mjs"], broker, tmp_path)
    assert GREETING in said.splitlines()
