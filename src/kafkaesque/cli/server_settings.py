"""Settings of a server process, read once: file, then KAFKAESQUE_* environment, then --set, then flags.

And how a command lists them.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import read_pair
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import (
    Setting,
    environment_texts,
    settings_of,
    typed_settings,
    unknown_setting,
)
from kafkaesque.model.settings import BROKER_SETTINGS

if TYPE_CHECKING:
    from kafkaesque.cli.render import Screen

T = TypeVar("T")

ENVIRONMENT_PREFIX = "KAFKAESQUE_"


def read_service_settings(
    cls: type[T],
    assignments: Sequence[str],
    *,
    listing: str,
    defaults: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    prefix: str = ENVIRONMENT_PREFIX,
) -> T:
    """A service's `cls`: `defaults`, then variables of `prefix`, then --set.

    A usage error names what is wrong, and for a wrong name `listing`, which lists them all.
    """
    known = settings_of(cls)
    texts = {**(defaults or {}), **environment_texts(known, environment or {}, prefix)}
    for assignment in assignments:
        name, value = read_pair(assignment)
        if name not in known:
            raise usage(f"{unknown_setting(name, known)} ({listing} names them all)")
        texts[name] = value
    try:
        return typed_settings(cls, texts)
    except InvalidConfig as error:
        raise usage(str(error)) from None


def show_settings(settings: Mapping[str, Setting], screen: Screen) -> None:
    from kafkaesque.cli.render import Column

    rows = [
        {"name": item.name, "default": item.show(item.default), "about": item.doc}
        for item in settings.values()
    ]
    columns = [Column(name, name) for name in rows[0]]
    screen.document(rows, lambda: screen.table(columns, rows))


def read_broker_settings(
    file: Path | None, environment: Mapping[str, str], assignments: Sequence[str]
) -> dict[str, str]:
    """Texts by setting name; a usage error names the line or variable that is wrong."""
    values: dict[str, str] = {}
    if file is not None:
        values |= _from_file(file)
    values |= environment_texts(BROKER_SETTINGS, environment, ENVIRONMENT_PREFIX)
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


def _known(name: str, where: str) -> str:
    if name in BROKER_SETTINGS:
        return name
    near = difflib.get_close_matches(name, BROKER_SETTINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise click.UsageError(
        f"{where}: no setting {name!r}{hint} (`kafkaesque config list` names them all)"
    )
