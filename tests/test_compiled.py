"""Which modules run compiled: those of the build, as long as their sources are the same."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafkaesque

MODULE = "kafkaesque.broker.raft.quorum"
PROGRAM = f"import kafkaesque, {MODULE} as module; print(kafkaesque.BUILD); print(module.__file__)"
PACKAGE = Path(kafkaesque.__file__).parent

needs_compiled = pytest.mark.skipif(
    not (PACKAGE / "_compiled.json").exists(),
    reason="nothing is compiled here: install a C compiler and run make compile",
)


def run(source: Path, pure: str = "") -> tuple[str, str]:
    """What a process reports of its build, and the file that it imported MODULE from."""
    program = [sys.executable, "-c", PROGRAM]
    environment = {"PYTHONPATH": str(source), "KAFKAESQUE_PURE": pure}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    build, file = done.stdout.splitlines()
    return build, Path(file).suffix


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of the package whose compiled modules fit their sources."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "kafkaesque")
    for library in PACKAGE.parent.glob("kafkaesque__mypyc*"):
        shutil.copy(library, tmp_path / "src")
    manifest = json.loads((PACKAGE / "_compiled.json").read_bytes())
    if kafkaesque.BUILD.startswith("sources: kafkaesque."):
        pytest.skip("a source was changed since the build: make compile")
    assert manifest["is_editable"]
    return tmp_path / "src"


@needs_compiled
def test_compiled_modules_run_by_default(source: Path) -> None:
    build, suffix = run(source)
    assert build.startswith("compiled: ")
    assert suffix == ".so"


@needs_compiled
@pytest.mark.parametrize("wish", ["1", "modules"])
def test_environment_can_ask_for_the_sources(source: Path, wish: str) -> None:
    assert run(source, wish) == ("sources: KAFKAESQUE_PURE is set", ".py")


@needs_compiled
def test_changed_source_runs_instead_of_what_was_compiled_from_the_old_one(source: Path) -> None:
    with (source / "kafkaesque" / "broker" / "raft" / "leader.py").open("a") as file:
        file.write("\n")
    build, suffix = run(source)
    assert build.startswith("sources: kafkaesque.broker.raft.leader was changed since the build")
    assert suffix == ".py"


def test_package_without_compiled_modules_runs_from_its_sources(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("*.so", "_compiled.json")
    shutil.copytree(PACKAGE, tmp_path / "kafkaesque", ignore=ignored)
    build, suffix = run(tmp_path)
    assert build == "sources: nothing was compiled when the package was built"
    assert suffix == ".py"
