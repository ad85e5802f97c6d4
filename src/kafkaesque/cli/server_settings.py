"""Reads and lists the settings of server processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from kafkaesque.cli.failures import usage
from kafkaesque.cli.options import read_pair
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.setting import Setting, settings_of, typed_settings
from kafkaesque.model.settings import BROKER_SETTINGS
from kafkaesque.service.settings import ENVIRONMENT_PREFIX, merge_settings

if TYPE_CHECKING:
    from kafkaesque.cli.render import Screen

T = TypeVar("T")


def read_service_settings(
    cls: type[T],
    assignments: Sequence[str],
    *,
    listing: str,
    defaults: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
    prefix: str = ENVIRONMENT_PREFIX,
) -> T:
    """A service's `cls` from `defaults`, environment variables with `prefix`, and --set, in that order.

    A wrong name or value is a usage error. For an unknown name it mentions `listing`, the command that
    lists all settings.
    """
    pairs = [read_pair(assignment) for assignment in assignments]
    try:
        texts = merge_settings(
            settings_of(cls), listing=listing, defaults=defaults, environment=environment,
            prefix=prefix, assignments=pairs,
        )  # fmt: skip
        return typed_settings(cls, texts)
    except InvalidConfig as error:
        raise usage(str(error)) from None


def read_broker_settings(
    file: Path | None, environment: Mapping[str, str], assignments: Sequence[str]
) -> dict[str, str]:
    """Values by setting name. A wrong line or option is a usage error."""
    pairs = [read_pair(assignment) for assignment in assignments]
    try:
        return merge_settings(
            BROKER_SETTINGS, listing="`kafkaesque config list`", file=file,
            environment=environment, assignments=[(name, value.strip()) for name, value in pairs],
        )  # fmt: skip
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
