"""Build hook: compiles what every record passes. Without a compiler the package is pure Python.

Two kinds of modules are compiled, and nothing changes but the speed:

- hand-written C that works on bytes (`EXTENSIONS`), each beside a Python function of the same
  behaviour (kafkaesque/records/native.py);
- Python modules (`MODULES`), compiled by mypyc from the same sources that run otherwise.

A failure is reported in one line. An editable install gets its modules beside the sources, a wheel
gets them inside. kafkaesque/compiled.py uses the sources instead if they were changed since.
"""

from __future__ import annotations

import hashlib
import json
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
    "broker/raft/durability.py",
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
    "broker/storage/epochs.py",
    "broker/storage/index.py",
    "broker/storage/log.py",
    "broker/storage/segment.py",
    "broker/storage/unsynced_tail.py",
    "service/clock.py",
)
"""Under src/kafkaesque: the way of a record from the socket to the disks of all replicas and back."""

FLAGS = ("-O3", "-fPIC", "-fwrapv", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")

MANIFEST = "kafkaesque/_compiled.json"


class CompilesExtensions(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, "src")
        is_editable = version == "editable"
        target = source if is_editable else Path(tempfile.mkdtemp(prefix="kafkaesque-build-"))
        for name in EXTENSIONS:
            path = source / "kafkaesque" / name
            module = Path("kafkaesque", name).with_suffix(sysconfig.get_config_var("EXT_SUFFIX"))
            if path.exists() and (failure := compile_extension(path, target / module)) is not None:
                self.app.display_warning(f"{name} is not compiled ({failure}): pure Python")
        failure = compile_modules(source, target, is_editable=is_editable)
        if failure is not None:
            self.app.display_warning(f"broker modules are not compiled ({failure}): pure Python")
        if not is_editable:
            for path in target.rglob("*"):
                if path.is_file():
                    place = path.relative_to(target).as_posix()
                    build_data["force_include"][str(path)] = place
                    build_data["pure_python"] = False
                    build_data["infer_tag"] = True


def compile_extension(source: Path, target: Path) -> str | None:
    """None, or why `target` could not be made."""
    include = sysconfig.get_path("include")
    if not Path(include, "Python.h").exists():
        return f"no Python.h in {include}"
    linker = shlex.split(sysconfig.get_config_var("LDSHARED") or "cc -shared")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Under another name first: a process that has the old module mapped must not see it change.
    fresh = target.with_name(f"{target.name}.new")
    command = [*linker, *FLAGS, f"-I{include}", str(source), "-o", str(fresh)]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        return str(error)
    if run.returncode != 0:
        return (run.stderr.strip().splitlines() or [f"{linker[0]} failed"])[0]
    fresh.replace(target)
    return None


def compile_modules(source: Path, target: Path, *, is_editable: bool) -> str | None:
    """Compile MODULES with mypyc into `target`. None, or why that failed."""
    paths = [source / "kafkaesque" / name for name in MODULES]
    manifest = make_manifest(source, paths, is_editable=is_editable)
    with tempfile.TemporaryDirectory(prefix="kafkaesque-mypyc-") as scratch:
        command = [sys.executable, str(Path(__file__).resolve()), scratch, *map(str, paths)]
        run = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            lines = [line for line in f"{run.stdout}\n{run.stderr}".splitlines() if line.strip()]
            return next((line for line in lines if "error:" in line), lines[-1] if lines else "?")
        remove_compiled(target)
        output = Path(scratch, "out")
        for path in output.rglob("*.so"):
            place = target / path.relative_to(output)
            place.parent.mkdir(parents=True, exist_ok=True)
            fresh = place.with_name(f"{place.name}.new")
            shutil.copy(path, fresh)
            fresh.replace(place)
    (target / MANIFEST).write_text(manifest)
    return None


def remove_compiled(target: Path) -> None:
    """Remove what an earlier build left: a module that is not in MODULES any more would not load."""
    if (target / MANIFEST).exists():
        for name in json.loads((target / MANIFEST).read_text())["modules"]:
            suffix = sysconfig.get_config_var("EXT_SUFFIX")
            Path(target, *name.split(".")).with_suffix(suffix).unlink(missing_ok=True)
        (target / MANIFEST).unlink()


def make_manifest(source: Path, paths: list[Path], *, is_editable: bool) -> str:
    """The digest of each source, by which kafkaesque/compiled.py sees that one was changed."""
    digests = {
        ".".join(path.relative_to(source).with_suffix("").parts): hashlib.sha1(
            path.read_bytes(), usedforsecurity=False
        ).hexdigest()
        for path in paths
    }
    return json.dumps({"is_editable": is_editable, "modules": digests}, indent=1)


def compile_in_place() -> str | None:
    """Compile MODULES beside their sources, unless that was done since they changed."""
    source = Path(__file__).resolve().parent / "src"
    paths = [source / "kafkaesque" / name for name in MODULES]
    manifest = source / MANIFEST
    wanted = make_manifest(source, paths, is_editable=True)
    if manifest.exists() and manifest.read_text() == wanted:
        return None
    print(f"compiling {len(paths)} modules, which takes about a minute")
    return compile_modules(source, source, is_editable=True)


def run_mypyc(scratch: Path, paths: list[str]) -> None:
    """Runs in a process of its own, because mypyc exits on errors."""
    from mypyc.build import mypycify

    os.environ["MYPYPATH"] = "."
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
    suffix = sysconfig.get_config_var("EXT_SUFFIX")

    def compile_source(extension: Any, source: str) -> str:
        """setuptools would compile the files of an extension one after the other."""
        includes = [
            f"-I{path}" for path in (*extension.include_dirs, sysconfig.get_path("include"))
        ]
        place = str(scratch / f"{extension.name}-{Path(source).stem}.o")
        flags = [*extension.extra_compile_args, "-fPIC", "-fwrapv", "-DNDEBUG"]
        subprocess.run([*compiler, *flags, *includes, "-c", source, "-o", place], check=True)
        return place

    with ThreadPoolExecutor(os.cpu_count()) as executor:
        for extension, objects in [
            (it, [executor.submit(compile_source, it, source) for source in it.sources])
            for it in extensions
        ]:
            target = Path(scratch, "out", *extension.name.split("."))
            target.parent.mkdir(parents=True, exist_ok=True)
            parts = [job.result() for job in objects]
            subprocess.run([*linker, *parts, "-o", f"{target}{suffix}"], check=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run_mypyc(Path(sys.argv[1]), sys.argv[2:])
    else:  # `make compile`
        sys.exit(compile_in_place())
