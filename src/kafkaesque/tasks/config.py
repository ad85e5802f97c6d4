"""The settings of a worker and of the timers, each declared once; read by the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.limits import MIB
from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT = SettingType.INT


@dataclass(frozen=True, slots=True)
class TasksConfig:
    """How calls are run and timers are kept."""

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
        "Calls that may begin and wait for a place to run: beyond that queues are not read. As many "
        "more wait for their key: beyond that they are left in the log. And as many are held.",
        at_least=1, at_most=1_000_000, ours=True,
    )  # fmt: skip
    held_bytes_max: int = setting(
        "held.bytes.max", INT, 64 * MIB,
        "Bytes of calls that wait: a quarter each for those that may begin, wait for their key, are "
        "held, are delayed.",
        at_least=MIB, ours=True,
    )  # fmt: skip
    delayed_records_max: int = setting(
        "delayed.records.max", INT, 2_000,
        "Calls that wait in memory for their next attempt, for each partition of a delayed topic.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip
    read_records_max: int = setting(
        "read.records.max", INT, 1_000, "Records taken from the log at once.", at_least=1,
        at_most=5_000, ours=True,
    )  # fmt: skip
    commit_interval_ms: int = setting(
        "commit.interval.ms", INT, 200,
        "How often progress is committed: a killed worker's calls of this long are repeated.",
        at_least=1, at_most=60_000, ours=True,
    )  # fmt: skip
    stop_grace_ms: int = setting(
        "stop.grace.ms", INT, 30_000,
        "How long calls under way may take when the worker stops; what is left runs elsewhere.",
        at_least=0, at_most=600_000, ours=True,
    )  # fmt: skip
    rebalance_grace_ms: int = setting(
        "rebalance.grace.ms", INT, 10_000,
        "How long calls under way may take when their partition goes to another worker; what is "
        "left is repeated there.",
        at_least=0, at_most=240_000, ours=True,
    )  # fmt: skip
    timers_batch_max: int = setting(
        "timers.batch.max", INT, 500, "Timers that fire in one transaction.", at_least=1,
        at_most=10_000, ours=True,
    )  # fmt: skip
    timers_tick_ms: int = setting(
        "timers.tick.ms", INT, 50,
        "How often the timers look at the clock and at new timers: the error of a firing.",
        at_least=1, at_most=10_000, ours=True,
    )  # fmt: skip


TASKS_SETTINGS: Mapping[str, Setting] = settings_of(TasksConfig)


def tasks_config(values: Mapping[str, str]) -> TasksConfig:
    """InvalidConfig names the setting that is unknown or wrong."""
    return typed_settings(TasksConfig, values)
