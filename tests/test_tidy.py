"""House rules that a machine can check (docs/adr/0001). They are about meaning, not about size."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "kafkaesque"
MODULES = sorted(SOURCE.rglob("*.py"))

FORBIDDEN_NAMES = {"utils", "util", "helpers", "common", "misc", "manager"}


def relative(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.fixture(scope="module")
def modules() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in MODULES]


Modules = list[tuple[Path, ast.Module]]


def test_every_module_says_what_lives_in_it(modules: Modules) -> None:
    assert [relative(path) for path, tree in modules if not ast.get_docstring(tree)] == []


def test_every_module_has_a_telling_name(modules: Modules) -> None:
    assert [relative(path) for path, _ in modules if path.stem in FORBIDDEN_NAMES] == []


def test_no_assert_statement_in_the_product(modules: Modules) -> None:
    """It vanishes under python -O; model.errors.check does not."""
    found = [
        (relative(path), node.lineno)
        for path, tree in modules
        for node in ast.walk(tree)
        if isinstance(node, ast.Assert)
    ]
    assert found == []


def test_no_unfinished_work(modules: Modules) -> None:
    marker = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [relative(path) for path, _ in modules if marker.search(path.read_text())] == []


def test_nothing_unpickles_or_evaluates(modules: Modules) -> None:
    """`exec` has one home: the compiler of our own message tables (docs/adr/0002)."""
    found = [
        (relative(path), node.func.id)
        for path, tree in modules
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("eval", "exec")
    ]
    assert found == [("wire/source.py", "exec")]
    assert [relative(path) for path, _ in modules if "pickle" in path.read_text()] == []


def test_every_api_with_tables_has_a_handler() -> None:
    tables = {path.stem for path in (SOURCE / "wire" / "messages").glob("[a-z]*.py")}
    handlers = {path.stem for path in (SOURCE / "broker" / "server" / "handlers").glob("[a-z]*.py")}
    assert tables == handlers


def test_documents_name_no_file_that_is_not_there() -> None:
    pattern = re.compile(r"\]\((?!https?:|#)([^)#]+)")
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in pattern.findall(document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} names {target}"
