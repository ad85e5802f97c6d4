"""Build hook: compiles what every record passes. Without a compiler the package is pure Python.

Two kinds of modules are compiled, and nothing changes but the speed:

- hand-written C that works on bytes (`EXTENSIONS`), each beside a Python function of the same
  behaviour (kafkaesque/records/native.py);
- Python modules (`MODULES`), compiled by mypyc from the same sources that run otherwise. They go into
  a directory of their own, which kafkaesque/compiled.py uses if it fits the sources.

A failure is reported in one line. `python hatch_build.py` compiles MODULES for an editable install
(`make compile`).
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXTENSIONS = (
    "records/_native.c",
    "wire/_native.c",
    "pipeline/_decoder.c",
)
"""Under src/kafkaesque; one that is not in the tree is left out."""

MODULES = (
    "wire/frames.py",
    "broker/server/connection.py",
    "broker/server/dispatch.py",
    "broker/server/stats.py",
    "broker/server/handlers/fetch.py",
    "broker/server/handlers/produce.py",
    "broker/partitions/partition.py",
    "broker/partitions/partition_table.py",
    "broker/partitions/waiting.py",
    "broker/partitions/rules/admission.py",
    "broker/replication/commit_waiters.py",
    "broker/replication/entry_index.py",
    "broker/replication/entry_log.py",
    "broker/replication/entry_map.py",
    "broker/replication/link_writer.py",
    "broker/replication/replica.py",
    "broker/replication/replica_set.py",
    "broker/replication/rules/entry_payload.py",
    "broker/replication/rules/outbox.py",
    "broker/replication/rules/peer_codec.py",
    "broker/replication/rules/pending_readies.py",
    "broker/raft/candidate.py",
    "broker/raft/clock.py",
    "broker/raft/core.py",
    "broker/raft/write_tracker.py",
    "broker/raft/follower.py",
    "broker/raft/leader.py",
    "broker/raft/log_view.py",
    "broker/raft/membership.py",
    "broker/raft/progress.py",
    "broker/raft/progress_tracker.py",
    "broker/raft/promises.py",
    "broker/raft/quorum.py",
    "broker/raft/reads.py",
    "broker/raft/state.py",
    "broker/raft/transitions.py",
    "broker/storage/chain.py",
    "broker/storage/rules/epochs.py",
    "broker/storage/index.py",
    "broker/storage/log.py",
    "broker/storage/segment.py",
    "broker/storage/unsynced_tail.py",
    "service/clock.py",
)
"""Under src/kafkaesque: the way of a record from the socket to the disks of all replicas and back."""

FLAGS = ("-O3", "-fPIC", "-fwrapv", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")


ROOT = Path(__file__).resolve().parent
PACKAGE = ROOT / "src" / "kafkaesque"


class CompilesExtensions(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        is_editable = version == "editable"
        self._scratch = Path(tempfile.mkdtemp(prefix="kafkaesque-build-"))
        target = PACKAGE if is_editable else self._scratch / "kafkaesque"
        for name in EXTENSIONS:
            module = target / Path(name).with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
            if (PACKAGE / name).exists():
                failure = compile_extension(PACKAGE / name, module)
                if failure is not None:
                    self.app.display_warning(f"{name} is not compiled ({failure}): pure Python")
        failure = compile_modules(target, is_editable=is_editable)
        if failure is not None:
            self.app.display_warning(f"broker modules are not compiled ({failure}): pure Python")
        for path in self._scratch.rglob("*.so"):
            build_data["force_include"][str(path)] = path.relative_to(self._scratch).as_posix()
            build_data["pure_python"] = False
            build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        shutil.rmtree(self._scratch, ignore_errors=True)


def compile_extension(source: Path, target: Path) -> str | None:
    """None, or why `target` could not be made."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"no Python.h in {include}"
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: a process that has the old module mapped must not see it change.
    fresh = target.with_name(f"{target.name}.new")
    flags = [*FLAGS, *cflags(), *layout_macros(source.with_name("layout.py"))]
    command = [*linker, *flags, f"-I{include}", str(source), "-o", str(fresh)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if run.returncode != 0:
        return (run.stderr.strip().splitlines() or [f"{linker[0]} failed"])[0]
    fresh.replace(target)
    return None


def layout_macros(layout: Path) -> list[str]:
    """The integers of the module `layout.py` beside a C file, if there is one, as macros."""
    if not layout.exists():
        return []
    values = vars(load_module("layout", layout))
    return [f"-D{name}={value}" for name, value in values.items() if type(value) is int]


def load_module(name: str, path: Path) -> Any:
    """A module that imports nothing of ours, loaded by itself."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cflags() -> list[str]:
    """Further flags for compiler and linker, such as a sanitizer's."""
    return shlex.split(os.environ.get("CFLAGS", ""))


def why_not_compiled() -> str | None:
    """What this machine lacks to compile MODULES."""
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        return f"no C compiler ({compiler})"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return f"no Python.h in {sysconfig.get_path('include')}"
    if importlib.util.find_spec("mypyc") is None:
        return "no mypyc (pip install mypy)"
    return None


def compile_modules(package: Path, *, is_editable: bool) -> str | None:
    """Compile MODULES with mypyc into a directory below `package`. None, or why that failed."""
    failure = why_not_compiled()
    if failure is not None:
        return failure
    place = compiled_directory(package, is_editable=is_editable)
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=place.parent) as scratch:
        command = [sys.executable, str(Path(__file__).resolve()), scratch]
        run = subprocess.run(
            command, cwd=PACKAGE.parent, capture_output=True, text=True, check=False
        )
        if run.returncode != 0:
            lines = [line for line in f"{run.stdout}\n{run.stderr}".splitlines() if line.strip()]
            return next((line for line in lines if "error:" in line), lines[-1] if lines else "?")
        shutil.rmtree(place, ignore_errors=True)
        Path(scratch, "out").rename(place)  # complete at once: a process may be starting
    for older in place.parent.glob(f"{place.name.rpartition('-')[0]}-*"):
        if older != place:
            shutil.rmtree(older, ignore_errors=True)
    return None


def compiled_directory(package: Path, *, is_editable: bool) -> Path:
    """Where kafkaesque/compiled.py looks."""
    compiled = load_module("compiled", PACKAGE / "compiled.py")
    state = compiled.digest_sources(PACKAGE) if is_editable else "installed"
    return package / "_compiled" / f"{compiled.TAG}-{state}"


def compile_in_place() -> int:
    """Compile MODULES for an editable install, unless that was done since the sources changed."""
    if compiled_directory(PACKAGE, is_editable=True).is_dir():
        return 0
    if (reason := why_not_compiled()) is not None:
        print(f"not compiled: {reason}; the sources run")
        return 0
    print(f"compiling {len(MODULES)} modules, which takes about a minute")
    failure = compile_modules(PACKAGE, is_editable=True)
    if failure is not None:
        print(failure, file=sys.stderr)
    return 0 if failure is None else 1


def run_mypyc(scratch: Path) -> None:
    """Runs in a process of its own, because mypyc exits on errors."""
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = "."
    paths = [f"kafkaesque/{name}" for name in MODULES]
    extensions = mypycify(
        # Without the project's settings: a build may lack the packages whose types they need.
        ["--config-file=", "--ignore-missing-imports", f"--cache-dir={scratch / 'cache'}", *paths],
        group_name="kafkaesque",
        multi_file=True,
        opt_level="2",
        debug_level="0",
        target_dir=str(scratch / "c"),
    )
    compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    # Calls between our own modules need no lookup: 7 % of a small request.
    direct_calls = ["-Wl,-Bsymbolic"] if sys.platform == "linux" else []
    (scratch / "out").mkdir()

    def compile_source(extension: Any, source: str) -> str:
        """setuptools would compile the files of an extension one after the other."""
        includes = [
            f"-I{path}" for path in (*extension.include_dirs, sysconfig.get_path("include"))
        ]
        place = str(scratch / f"{extension.name}-{Path(source).stem}.o")
        flags = [*extension.extra_compile_args, "-fPIC", "-fwrapv", "-DNDEBUG", *cflags()]
        subprocess.run([*compiler, *flags, *includes, "-c", source, "-o", place], check=True)
        return place

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for extension, objects in [
            (it, [executor.submit(compile_source, it, source) for source in it.sources])
            for it in extensions
        ]:
            parts = [job.result() for job in objects]
            target = scratch / "out" / f"{extension.name}.so"
            command = [*linker, *cflags(), *direct_calls, *parts, "-o", str(target)]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_mypyc(Path(sys.argv[1]))
    else:
        sys.exit(compile_in_place())
