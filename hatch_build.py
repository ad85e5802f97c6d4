"""Build hook: compiles the optional C modules. Without a compiler the package is pure Python.

Each extension stands beside the Python code that uses it and has a pure twin of the same behaviour
(kafkaesque/records/native.py), so a failure here costs speed and nothing else, and is told in one
line. An editable install gets its modules beside the sources, a wheel gets them inside.
"""

from __future__ import annotations

import shlex
import subprocess
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

EXTENSIONS = (
    "records/_native.c",
    "wire/_native.c",
    "pipeline/_decoder.c",
)
"""Under src/kafkaesque; one that is not in the tree is left out."""

FLAGS = ("-O3", "-fPIC", "-fwrapv", "-Wall", "-Wextra", "-Werror=implicit-function-declaration")


class CompilesExtensions(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        package = Path(self.root, "src", "kafkaesque")
        sources = [package / name for name in EXTENSIONS if (package / name).exists()]
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        scratch = Path(tempfile.mkdtemp(prefix="kafkaesque-build-"))
        for source in sources:
            place = source.with_suffix("").relative_to(package).with_suffix(suffix)
            target = package / place if version == "editable" else scratch / place
            failure = compile_extension(source, target)
            if failure is not None:
                self.app.display_warning(f"{source.name} is not compiled ({failure}): pure Python")
            elif version != "editable":
                build_data["pure_python"] = False
                build_data["infer_tag"] = True
                build_data["force_include"][str(target)] = f"kafkaesque/{place.as_posix()}"


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
