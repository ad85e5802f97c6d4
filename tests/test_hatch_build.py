"""The build hook: a module where there is a compiler, a reason where there is none."""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_first_extensions_are_those_of_records_and_wire(hook: ModuleType) -> None:
    package = ROOT / "src" / "kafkaesque"
    assert [name for name in hook.EXTENSIONS[:2] if not (package / name).exists()] == []


def test_compiled_module_can_be_imported(hook: ModuleType, tmp_path: Path) -> None:
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        pytest.skip("Python.h is missing: apt install python3-dev")
    source = tmp_path / "_tiny.c"
    source.write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef tiny = {PyModuleDef_HEAD_INIT, .m_name = "_tiny"};\n'
        "PyMODINIT_FUNC PyInit__tiny(void) { return PyModule_Create(&tiny); }\n"
    )
    target = tmp_path / "out" / f"_tiny{sysconfig.get_config_var('EXT_SUFFIX')}"
    failure = hook.compile_extension(source, target)
    if failure is not None and "No such file" in failure:
        pytest.skip(f"a C compiler is missing: apt install gcc ({failure})")
    assert failure is None
    spec = importlib.util.spec_from_file_location("_tiny", target)
    assert spec is not None
    assert importlib.util.module_from_spec(spec).__name__ == "_tiny"
    assert sorted(path.name for path in target.parent.iterdir()) == [target.name]


def test_source_that_does_not_compile_is_told_in_one_line(hook: ModuleType, tmp_path: Path) -> None:
    source = tmp_path / "_broken.c"
    source.write_text("this is not C")
    failure = hook.compile_extension(source, tmp_path / "_broken.so")
    assert failure
    assert "\n" not in failure


def test_missing_compiler_is_told_and_not_raised(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        hook.sysconfig, "get_config_var", lambda name: str(tmp_path / "no-such-cc") + " -shared"
    )
    assert "no-such-cc" in hook.compile_extension(tmp_path / "x.c", tmp_path / "x.so")


def test_hook_imports_nothing_of_the_product(hook: ModuleType) -> None:
    assert not any(name.startswith("kafkaesque") for name in vars(hook))
    assert "hatchling" in sys.modules
