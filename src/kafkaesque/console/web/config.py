"""What a console is told when it starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkaesque.model.setting import SettingType, setting, settings_of


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Tunables, each a `--set NAME=VALUE`."""

    interval_ms: int = setting(
        "console.interval.ms",
        SettingType.INT,
        1000,
        "Time between two looks at the cluster; a large cluster is looked at less often by itself.",
        at_least=100,
        ours=True,
    )
    session_hours: int = setting(
        "console.session.hours",
        SettingType.INT,
        12,
        "How long an operator stays signed in.",
        at_least=1,
        at_most=720,
        ours=True,
    )
    is_private: bool = setting(
        "console.private",
        SettingType.BOOLEAN,
        False,
        "Whether reading needs the operator's password too.",
        ours=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        "console.allowed.hosts",
        SettingType.LIST,
        (),
        "Names under which browsers may reach it, besides the address it listens on and loopback.",
        ours=True,
    )


CONSOLE_SETTINGS = settings_of(ConsoleSettings)


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """Of librdkafka, for a secured Kafka."""
    host: str = "127.0.0.1"
    port: int = 0
    password: str = ""
    """The operator's; with none nobody can sign in."""
    coordination: str | None = None
    metrics: tuple[str, ...] = ()
    control_file: Path | None = None
    pipeline_data: Path | None = None
    schemas: Path | None = None
    schema_registry: str | None = None
    chat_url: str | None = None
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
