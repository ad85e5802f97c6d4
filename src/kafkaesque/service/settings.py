"""Settings of a server process from their sources, read once at the start.

Later sources win: defaults, properties file, environment variables, assignments of the command line.
What the settings are and how their values are checked is in `model.setting`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import Setting, environment_texts

ENVIRONMENT_PREFIX = "KAFKAESQUE_"


class Property(NamedTuple):
    """One line of a properties file; `where` is FILE:LINE."""

    where: str
    name: str
    value: str


def read_properties(file: Path) -> Iterator[Property]:
    """Properties in the form of Kafka's files: name=value; lines with # or ! are comments.

    Raises InvalidConfig.
    """
    try:
        lines = file.read_text("utf-8").splitlines()
    except OSError as error:
        raise InvalidConfig(f"cannot read {file}: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        text = line.strip()
        if not text or text.startswith(("#", "!")):
            continue
        name, equals, value = text.partition("=")
        if not equals:
            raise InvalidConfig(f"{file}:{number}: '{text}' is not NAME=VALUE.")
        yield Property(f"{file}:{number}", name.strip(), value.strip())


def merge_settings(
    known: Mapping[str, Setting],
    *,
    listing: str,
    defaults: Mapping[str, str] | None = None,
    file: Path | None = None,
    environment: Mapping[str, str] | None = None,
    prefix: str = ENVIRONMENT_PREFIX,
    assignments: Sequence[tuple[str, str]] = (),
) -> dict[str, str]:
    """Texts by setting name. Values are not checked yet.

    Raises InvalidConfig, which names the line or option with an unknown name, and `listing`, the
    command that lists all settings.
    """
    found = dict(defaults or {})
    given = [] if file is None else list(read_properties(file))
    for where, name, value in given:
        found[_known(name, known, where, listing)] = value
    found |= environment_texts(known, environment or {}, prefix)
    for name, value in assignments:
        found[_known(name, known, "--set", listing)] = value
    return found


def _known(name: str, known: Mapping[str, Setting], where: str, listing: str) -> str:
    if name in known:
        return name
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise InvalidConfig(f"{where}: there is no setting '{name}'{hint} ({listing} lists them all)")
