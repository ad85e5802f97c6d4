"""The settings of a source. The command line reads them and passes them down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT, DOUBLE, BOOLEAN, STRING = (
    SettingType.INT,
    SettingType.DOUBLE,
    SettingType.BOOLEAN,
    SettingType.STRING,
)
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SourceConfig:
    """Settings of a source: how it reads its network and writes to the log."""

    batch_posts_max: int = setting(
        "batch.posts.max", INT, 500, "Maximum number of frames processed and written together.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    batch_linger_ms: int = setting(
        "batch.linger.ms", INT, 50, "How long a post may wait for others to be written in the same batch.",
        at_least=0, at_most=60_000, ours=True,
    )  # fmt: skip
    buffer_frames_max: int = setting(
        "buffer.frames.max", INT, 2000,
        "Frames read and not yet written. A full buffer applies backpressure to the network.",
        at_least=1, at_most=1_000_000, ours=True,
    )  # fmt: skip
    frame_max_bytes: int = setting(
        "frame.max.bytes", INT, _MIB, "A larger frame is skipped and written to the dead letters.",
        at_least=1024, at_most=16 * _MIB, ours=True,
    )  # fmt: skip
    cursor_interval_ms: int = setting(
        "cursor.interval.ms", INT, 1000,
        "How often the cursor is written while no matching post arrives.",
        at_least=10, ours=True,
    )  # fmt: skip
    cursor_rewind_ms: int = setting(
        "cursor.rewind.ms", INT, 5000,
        "How far before its cursor a source resumes, because networks deliver out of order.",
        at_least=0, ours=True,
    )  # fmt: skip
    dedup_window_posts: int = setting(
        "dedup.window.posts", INT, 100_000,
        "Number of recent posts used to detect duplicates and match deletions; as many are read from the "
        "log at a start.",
        at_least=100, at_most=5_000_000, ours=True,
    )  # fmt: skip
    deletes: str = setting(
        "deletes", STRING, "known",
        "`known` forwards deletions of posts in the window, `all` every deletion that the network sends.",
        choices=("known", "all"), ours=True,
    )  # fmt: skip
    idle_timeout_ms: int = setting(
        "idle.timeout.ms", INT, 30_000,
        "A connection that receives nothing for this long, keep-alives included, is replaced. X sends a "
        "keep-alive every 20 s, Mastodon every 15 s.",
        at_least=100, ours=True,
    )  # fmt: skip
    connect_timeout_ms: int = setting(
        "connect.timeout.ms", INT, 10_000, "Timeout for establishing a connection.",
        at_least=100, ours=True,
    )  # fmt: skip
    backoff_scale: float = setting(
        "backoff.scale", DOUBLE, 1.0,
        "Multiplies every wait between connections; use values below 1 only for your own servers.",
        at_least=0.0, at_most=10.0, ours=True,
    )  # fmt: skip
    transactions: str = setting(
        "transactions", STRING, "auto",
        "Whether posts and cursor are written in one transaction: `auto` if the broker supports it, "
        "`required` fails otherwise, `never`.",
        choices=("auto", "required", "never"), ours=True,
    )  # fmt: skip
    mastodon_transport: str = setting(
        "mastodon.transport", STRING, "websocket",
        "`websocket` uses one connection for all hashtags, `sse` one for each.",
        choices=("websocket", "sse"), ours=True,
    )  # fmt: skip
    x_enterprise: bool = setting(
        "x.enterprise", BOOLEAN, False,
        "Use features of X's Enterprise access: backfill and recovery of gaps, and deletions from the "
        "compliance stream.",
        ours=True,
    )  # fmt: skip
    x_search: bool = setting(
        "x.search", BOOLEAN, True,
        "Without Enterprise access, fill gaps of up to 7 days by X's recent search.",
        ours=True,
    )  # fmt: skip


SOURCE_SETTINGS: Mapping[str, Setting] = settings_of(SourceConfig)


def source_config(values: Mapping[str, str]) -> SourceConfig:
    """Raises InvalidConfig, which names an unknown or invalid setting."""
    return typed_settings(SourceConfig, values)
