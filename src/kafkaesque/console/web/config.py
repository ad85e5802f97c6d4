"""The console's configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kafkaesque.model.setting import SettingType, setting, settings_of


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings that `--set NAME=VALUE` changes."""

    interval_ms: int = setting(
        "console.interval.ms",
        SettingType.INT,
        1000,
        "Time between two samples of the cluster; a large cluster is sampled less often.",
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
        "Whether reading requires the operator's password, too.",
        ours=True,
    )
    allowed_hosts: tuple[str, ...] = setting(
        "console.allowed.hosts",
        SettingType.LIST,
        (),
        "Host names that browsers may use, besides loopback and the address it listens on.",
        ours=True,
    )


CONSOLE_SETTINGS = settings_of(ConsoleSettings)


@dataclass(frozen=True, slots=True)
class ConsoleConfig:
    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)
    """librdkafka properties, for example for TLS and SASL."""
    host: str = "127.0.0.1"
    port: int = 0
    password: str = ""
    """The operator's password; if it is empty, sign-in is disabled."""
    coordination: str | None = None
    metrics: tuple[str, ...] = ()
    control_file: Path | None = None
    pipeline_data: Path | None = None
    schemas: Path | None = None
    schema_registry: str | None = None
    chat_url: str | None = None
    settings: ConsoleSettings = field(default_factory=ConsoleSettings)
