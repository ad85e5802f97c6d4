"""Replaces segments by the cleaned segment made from them, atomically across crashes.

    <base>.<token>.cleaned              being written; useless after a crash
    <base>-<end>.swap                   complete and durable; replaces all segments in [base, end)
    <base>.log                          the final name

The rename to `.swap` commits the swap; the directory is synced before and after it. Then the old
segments are deleted and the new one gets its final name. A crash in between leaves the `.swap` file,
and recovery finishes the swap. The old segments are removed from the log's structure beforehand, so
their sizes and indexes are never mistaken for those of the new one.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Final

from kafkaesque.broker.storage.open_files import SystemCalls
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.storage")

CLEANED_SUFFIX: Final = ".cleaned"
_SWAP: Final = re.compile(r"([0-9]{20})-([0-9]{20})\.swap")
_LOG: Final = re.compile(r"([0-9]{20})\.log")


def cleaned_path(directory: str, base_offset: Offset, token: str) -> str:
    """`token` distinguishes cleaners: one that outlived its broker may still write here."""
    return f"{directory}/{base_offset:020d}.{token}{CLEANED_SUFFIX}"


def cleaned_index_path(directory: str, base_offset: Offset, token: str) -> str:
    return f"{directory}/{base_offset:020d}.{token}.index{CLEANED_SUFFIX}"


def commit(
    directory: str, base_offset: Offset, end_offset: Offset, token: str, calls: SystemCalls
) -> None:
    """Commits the swap: from here on the cleaned segment is the valid one. Raises OSError."""
    calls.sync_directory(directory)
    calls.rename(
        cleaned_path(directory, base_offset, token), _swap_path(directory, base_offset, end_offset)
    )
    calls.sync_directory(directory)


def apply(directory: str, bases: Sequence[Offset], end_offset: Offset, calls: SystemCalls) -> None:
    """Deletes the replaced segments and renames the cleaned one. Raises OSError.

    The first segment, whose name the cleaned one takes, is replaced last by the rename. As long as
    the `.swap` file exists, this can be repeated.
    """
    base_offset = bases[0]
    for base in reversed(bases):
        if base != base_offset:
            _unlink(f"{directory}/{base:020d}.log", calls)
        _unlink(f"{directory}/{base:020d}.index", calls)
    calls.rename(
        _swap_path(directory, base_offset, end_offset), f"{directory}/{base_offset:020d}.log"
    )


def install_index(directory: str, base_offset: Offset, token: str, calls: SystemCalls) -> None:
    """Renames the cleaned segment's index if there is one; without it the index is rebuilt."""
    with contextlib.suppress(FileNotFoundError):
        calls.rename(
            cleaned_index_path(directory, base_offset, token),
            f"{directory}/{base_offset:020d}.index",
        )


def discard_cleaned(directory: str, calls: SystemCalls) -> None:
    """Deletes the files of a cleaning that did not finish."""
    for name in calls.list_names(directory):
        if name.endswith(CLEANED_SUFFIX):
            _unlink(f"{directory}/{name}", calls)


def finish_committed(directory: str, calls: SystemCalls) -> list[Offset]:
    """Finishes, after a crash, every swap that was committed.

    Returns the base offsets of the replaced segments. Blocking; raises OSError.
    """
    discard_cleaned(directory, calls)
    replaced: list[Offset] = []
    names = calls.list_names(directory)
    for name in sorted(names):
        found = _SWAP.fullmatch(name)
        if found is None:
            continue
        base_offset, end_offset = Offset(int(found[1])), Offset(int(found[2]))
        old = [base for base in _bases(names) if base_offset < base < end_offset]
        _log.warning("%s/%s: finishing a swap that a crash interrupted", directory, name)
        # The other old segments must be durably deleted before the `.swap` name, which lists them.
        for base in reversed(old):
            _unlink(f"{directory}/{base:020d}.log", calls)
        calls.sync_directory(directory)
        apply(directory, [base_offset, *old], end_offset, calls)
        calls.sync_directory(directory)
        replaced += [base_offset, *old]
    return replaced


def _bases(names: Iterable[str]) -> list[Offset]:
    matches = (_LOG.fullmatch(name) for name in names)
    return sorted(Offset(int(match[1])) for match in matches if match is not None)


def _swap_path(directory: str, base_offset: Offset, end_offset: Offset) -> str:
    return f"{directory}/{base_offset:020d}-{end_offset:020d}.swap"


def _unlink(path: str, calls: SystemCalls) -> None:
    with contextlib.suppress(FileNotFoundError):
        calls.unlink(path)
