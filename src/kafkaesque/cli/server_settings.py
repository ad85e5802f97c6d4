"""Settings of a server process, read once: file, then KAFKAESQUE_* environment, then --set, then flags."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from kafkaesque.model.settings import BROKER_SETTINGS

ENVIRONMENT_PREFIX = "KAFKAESQUE_"


def read_broker_settings(
    file: Path | None, environment: Mapping[str, str], assignments: Sequence[str]
) -> dict[str, str]:
    """Texts by setting name; a usage error names the line or variable that is wrong."""
    values: dict[str, str] = {}
    if file is not None:
        values |= _from_file(file)
    values |= _from_environment(environment)
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise click.UsageError(f"--set wants NAME=VALUE, not {assignment!r}")
        values[_known(name.strip(), "--set")] = value.strip()
    return values


def _from_file(file: Path) -> dict[str, str]:
    """A properties file in the form of Kafka's server.properties: name=value, # comments."""
    values: dict[str, str] = {}
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        raise click.UsageError(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        stripped = line.strip()
        if not stripped or stripped.startswith(("#", "!")):
            continue
        name, separator, value = stripped.partition("=")
        if not separator:
            raise click.UsageError(f"{file}:{number}: name=value expected")
        values[_known(name.strip(), f"{file}:{number}")] = value.strip()
    return values


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """KAFKAESQUE_NUM_PARTITIONS=4 is num.partitions=4. Other variables of the prefix are not ours."""
    by_variable = {
        ENVIRONMENT_PREFIX + name.upper().replace(".", "_"): name for name in BROKER_SETTINGS
    }
    return {by_variable[key]: value for key, value in environment.items() if key in by_variable}


def _known(name: str, where: str) -> str:
    if name in BROKER_SETTINGS:
        return name
    near = difflib.get_close_matches(name, BROKER_SETTINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise click.UsageError(
        f"{where}: no setting {name!r}{hint} (`kafkaesque config list` names them all)"
    )
