"""The settings of workers and timers. The command line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.limits import MIB
from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT = SettingType.INT


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """Settings of workers and timers."""

    concurrency: int = setting(
        "concurrency", INT, 100, "Calls of one worker that run at once.", at_least=1,
        at_most=100_000, ours=True,
    )  # fmt: skip
    threads_max: int = setting(
        "threads.max", INT, 16, "Plain (not async) functions of one worker that run at once.",
        at_least=1, at_most=1_000, ours=True,
    )  # fmt: skip
    held_records_max: int = setting(
        "held.records.max", INT, 10_000,
        "Calls that are ready to run: at the limit, queues are paused. The same number may be blocked "
        "by their key (beyond that, calls stay in the log), and may be in ordered backoff.",
        at_least=1, at_most=1_000_000, ours=True,
    )  # fmt: skip
    held_bytes_max: int = setting(
        "held.bytes.max", INT, 64 * MIB,
        "Bytes of waiting calls: a quarter each for calls that are ready, blocked by their key, in "
        "ordered backoff, and delayed.",
        at_least=MIB, ours=True,
    )  # fmt: skip
    delayed_records_max: int = setting(
        "delayed.records.max", INT, 2_000,
        "Calls that wait in memory for their next attempt, for each partition of a delayed topic.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    read_records_max: int = setting(
        "read.records.max", INT, 1_000, "Records read from the log at once.", at_least=1,
        at_most=5_000, ours=True,
    )  # fmt: skip
    commit_interval_ms: int = setting(
        "commit.interval.ms", INT, 200,
        "How often offsets are committed. After a kill, calls that ended within this time are repeated.",
        at_least=1, at_most=60_000, ours=True,
    )  # fmt: skip
    stop_grace_ms: int = setting(
        "stop.grace.ms", INT, 30_000,
        "How long running calls may take when the worker stops; the rest run on other workers.",
        at_least=0, at_most=600_000, ours=True,
    )  # fmt: skip
    rebalance_grace_ms: int = setting(
        "rebalance.grace.ms", INT, 10_000,
        "How long running calls may take when their partition moves to another worker; the rest are "
        "repeated there.",
        at_least=0, at_most=240_000, ours=True,
    )  # fmt: skip
    timers_batch_max: int = setting(
        "timers.batch.max", INT, 500, "Timers that fire in one transaction.", at_least=1,
        at_most=10_000, ours=True,
    )  # fmt: skip
    timers_tick_ms: int = setting(
        "timers.tick.ms", INT, 50,
        "How often timers check the clock and new timers: the precision of a firing.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip


TASKS_SETTINGS: Mapping[str, Setting] = settings_of(TasksConfig)


def tasks_config(values: Mapping[str, str]) -> TasksConfig:
    """Raises InvalidConfig, which names the unknown or invalid setting."""
    return typed_settings(TasksConfig, values)
