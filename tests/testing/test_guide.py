"""docs/TESTING.md: its snippets run exactly as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "TESTING.md"
SNIPPETS = re.findall(r"^```(\w+)\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
PYTHON = [text for language, text in SNIPPETS if language == "python"]
PROGRAMS = [text for text in PYTHON if "def test_" not in text]
TESTS = [text for text in PYTHON if "def test_" in text]
(INI,) = [text for language, text in SNIPPETS if language == "ini"]


def run(*arguments: str, directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=directory,
        env=os.environ | {"TMPDIR": str(directory)},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("program", PROGRAMS, ids=["with", "async with", "everything", "cluster"])
def test_program_runs_as_written(program: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(program)
    assert run("program.py", directory=tmp_path)


def test_tests_pass_as_written(tmp_path: Path) -> None:
    for number, text in enumerate(TESTS):
        (tmp_path / f"test_snippet_{number}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text(INI)
    count = sum(text.count("def test_") for text in TESTS)
    assert f"{count} passed" in run("-m", "pytest", "-q", directory=tmp_path)
