"""Which modules run compiled: those of a build that fits the sources and the interpreter."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kafkaesque
from kafkaesque import compiled

MODULE = "kafkaesque.broker.raft.quorum"
PROGRAM = (
    f"import kafkaesque, {MODULE} as module; print(kafkaesque.BUILD.text); print(module.__file__)"
)
PACKAGE = Path(kafkaesque.__file__).parent
BUILT = PACKAGE / "_compiled" / f"{compiled.TAG}-{compiled.digest_sources(PACKAGE)}"

needs_build = pytest.mark.skipif(
    not BUILT.is_dir(), reason="the sources as they are now are not compiled: make compile"
)


def run(source: Path, pure: str = "") -> tuple[str, str]:
    """What a process reports of its build, and the suffix of the file that it imported."""
    program = [sys.executable, "-c", PROGRAM]
    environment = {"PYTHONPATH": str(source), "KAFKAESQUE_PURE": pure}
    done = subprocess.run(program, env=environment, capture_output=True, text=True, check=True)
    build, file = done.stdout.splitlines()
    return build, Path(file).suffix


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The sources and their builds, in a checkout of their own."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "kafkaesque")
    shutil.copy(PACKAGE.parents[1] / "hatch_build.py", tmp_path)
    return tmp_path / "src"


@needs_build
def test_compiled_modules_run_if_they_fit_the_sources(source: Path) -> None:
    build, suffix = run(source)
    assert build.endswith(" compiled modules")
    assert suffix == ".so"


@needs_build
@pytest.mark.parametrize("wish", ["1", "modules"])
def test_environment_can_ask_for_the_sources(source: Path, wish: str) -> None:
    assert run(source, wish) == ("sources, because KAFKAESQUE_PURE is set", ".py")


@needs_build
@pytest.mark.parametrize("changed", ["broker/raft/leader.py", "broker/raft/types.py"])
def test_changed_source_runs_whether_it_is_compiled_or_imported_by_one_that_is(
    source: Path, changed: str
) -> None:
    with (source / "kafkaesque" / changed).open("a") as file:
        file.write("\n")
    assert run(source) == ("sources, because they were changed since the build", ".py")


@needs_build
def test_changed_build_runs_the_sources(source: Path) -> None:
    with (source.parent / "hatch_build.py").open("a") as file:
        file.write("\n")
    assert run(source) == ("sources, because they were changed since the build", ".py")


@needs_build
def test_build_of_another_interpreter_does_not_count(source: Path) -> None:
    directory = source / "kafkaesque" / "_compiled"
    (directory / BUILT.name).rename(directory / BUILT.name.replace("cpython-3", "cpython-9"))
    assert run(source) == ("sources, because they were changed since the build", ".py")


@needs_build
def test_wheel_is_not_compared_with_its_sources(source: Path) -> None:
    directory = source / "kafkaesque" / "_compiled"
    (directory / BUILT.name).rename(directory / f"{compiled.TAG}-installed")
    with (source / "kafkaesque" / "broker" / "raft" / "leader.py").open("a") as file:
        file.write("\n")
    assert run(source)[1] == ".so"


def test_package_without_compiled_modules_runs_from_its_sources(source: Path) -> None:
    shutil.rmtree(source / "kafkaesque" / "_compiled", ignore_errors=True)
    build, suffix = run(source)
    assert build == "sources, because the package was built without a C compiler"
    assert suffix == ".py"


def test_package_can_be_imported_from_a_zip(tmp_path: Path) -> None:
    """As Spark's `--py-files` does."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "kafkaesque", ignore=shutil.ignore_patterns("*.so"))
    shutil.make_archive(str(tmp_path / "package"), "zip", tmp_path / "src")
    build, suffix = run(tmp_path / "package.zip")
    assert build == "sources, because the package was built without a C compiler"
    assert suffix == ".py"
