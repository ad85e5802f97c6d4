"""The settings of a source, each declared once; read by the command line, passed down."""

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
    """How a source reads its network and writes to the log."""

    batch_posts_max: int = setting(
        "batch.posts.max", INT, 500, "Frames that are read, judged and written together.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    batch_linger_ms: int = setting(
        "batch.linger.ms", INT, 50, "How long a post may wait for others to be written with.",
        at_least=0, at_most=60_000, ours=True,
    )  # fmt: skip
    buffer_frames_max: int = setting(
        "buffer.frames.max", INT, 2000,
        "Frames read and not yet written. When it is full the network is made to wait.",
        at_least=1, at_most=1_000_000, ours=True,
    )  # fmt: skip
    frame_max_bytes: int = setting(
        "frame.max.bytes", INT, _MIB, "A larger frame is skipped and reported.",
        at_least=1024, at_most=16 * _MIB, ours=True,
    )  # fmt: skip
    cursor_interval_ms: int = setting(
        "cursor.interval.ms", INT, 1000,
        "How often the cursor is written while no followed post comes by.",
        at_least=10, ours=True,
    )  # fmt: skip
    cursor_rewind_ms: int = setting(
        "cursor.rewind.ms", INT, 5000,
        "How far behind its cursor a source resumes, since networks deliver out of order.",
        at_least=0, ours=True,
    )  # fmt: skip
    dedup_window_posts: int = setting(
        "dedup.window.posts", INT, 100_000,
        "Posts that duplicates and deletions are held against; also how much of the log is read "
        "at a start.",
        at_least=100, at_most=5_000_000, ours=True,
    )  # fmt: skip
    deletes: str = setting(
        "deletes", STRING, "known",
        "`known` forwards deletions of posts in the window, `all` every one that the network sends.",
        choices=("known", "all"), ours=True,
    )  # fmt: skip
    idle_timeout_ms: int = setting(
        "idle.timeout.ms", INT, 30_000,
        "A connection that is silent for this long, keep-alives included, is made anew. X sends one "
        "every 20 s, Mastodon every 15 s.",
        at_least=100, ours=True,
    )  # fmt: skip
    connect_timeout_ms: int = setting(
        "connect.timeout.ms", INT, 10_000, "A connection that takes longer has failed.",
        at_least=100, ours=True,
    )  # fmt: skip
    backoff_scale: float = setting(
        "backoff.scale", DOUBLE, 1.0,
        "Multiplies every wait between connections; below 1 is for servers of your own.",
        at_least=0.0, at_most=10.0, ours=True,
    )  # fmt: skip
    transactions: str = setting(
        "transactions", STRING, "auto",
        "Whether posts and cursor are written in one transaction: `auto` if the broker has them, "
        "`required` fails without, `never`.",
        choices=("auto", "required", "never"), ours=True,
    )  # fmt: skip
    mastodon_transport: str = setting(
        "mastodon.transport", STRING, "websocket",
        "`websocket` is one connection for all hashtags, `sse` one for each.",
        choices=("websocket", "sse"), ours=True,
    )  # fmt: skip
    x_enterprise: bool = setting(
        "x.enterprise", BOOLEAN, False,
        "Use what X gives to Enterprise access alone: backfill and recovery of gaps, and deletions "
        "from the compliance stream.",
        ours=True,
    )  # fmt: skip
    x_search: bool = setting(
        "x.search", BOOLEAN, True,
        "Without Enterprise access, fill gaps of up to 7 days by X's recent search.",
        ours=True,
    )  # fmt: skip


SOURCE_SETTINGS: Mapping[str, Setting] = settings_of(SourceConfig)


def source_config(values: Mapping[str, str]) -> SourceConfig:
    """InvalidConfig names the setting that is unknown or wrong."""
    return typed_settings(SourceConfig, values)
