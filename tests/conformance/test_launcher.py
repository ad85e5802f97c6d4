"""The launcher of Apache Kafka: its errors, and its cleanup."""

from __future__ import annotations

import hashlib
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import eventually_passes

from kafkaesque.testing.java_server import JavaServerFailed, take_port
from kafkaesque.testing.maven import JavaUnavailable, classpath, require_tool

ORPHANS = """
import os, subprocess, sys
from pathlib import Path
from kafkaesque.testing.java_server import start_guard
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL)
start_guard(Path(sys.argv[1]), [child.pid])
print(child.pid, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("tool", ["java", "mvn"])
def test_missing_tool_is_named_with_an_installation_hint(
    monkeypatch: pytest.MonkeyPatch, tool: str
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(JavaUnavailable, match=rf"`{tool}` is not on the PATH: install .*apt"):
        require_tool(tool)


def test_cached_classpath_is_used_only_while_its_jars_exist(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(JavaUnavailable):
        classpath(["a:b:1"])
    jar = tmp_path / "b-1.jar"
    jar.touch()
    with pytest.raises(JavaUnavailable, match="mvn"):
        classpath(["a:b:1"])
    digest = hashlib.sha256(b"a:b:1").hexdigest()[:16]
    (tmp_path / "kafkaesque" / f"classpath-{digest}.txt").write_text(str(jar))
    assert classpath(["a:b:1"]) == str(jar)
    jar.unlink()
    with pytest.raises(JavaUnavailable, match="mvn"):
        classpath(["a:b:1"])


def test_nothing_remains_when_the_parent_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "kafka"
    directory.mkdir()
    outcome = subprocess.run(
        [sys.executable, "-c", ORPHANS, str(directory)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert outcome.returncode == -9
    orphan = int(outcome.stdout)

    def gone() -> None:
        assert not directory.exists()
        try:
            state = Path(f"/proc/{orphan}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        # A zombie that no init reaps (a container's PID 1 may not) is dead as well.
        assert state == "Z"

    eventually_passes(gone)


def test_port_in_use_is_refused() -> None:
    """Another Kafka on that port would answer in place of ours."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(JavaServerFailed, match="is in use"),
    ):
        take_port(taken.getsockname()[1])
