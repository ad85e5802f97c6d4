"""A cleaned segment takes the place of those it was made of, whatever happens on the way.

    <base>.<token>.cleaned              being written; of no use after a crash
    <base>-<end>.swap                   whole and durable: it stands for all segments in [base, end)
    <base>.log                          the end of it

The rename to `.swap` is the moment of decision, and the directory is synced before and after it.
From then on the segments it was made of are deleted and it gets its name; a crash anywhere on that
way leaves the `.swap` file, and recovery goes the rest. What the old segments were is struck from
the log's structure before, so a size or an index of theirs is never taken for the new one's.
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
    """`token` tells apart those who may have written here: a cleaner that outlived its broker."""
    return f"{directory}/{base_offset:020d}.{token}{CLEANED_SUFFIX}"


def cleaned_index_path(directory: str, base_offset: Offset, token: str) -> str:
    return f"{directory}/{base_offset:020d}.{token}.index{CLEANED_SUFFIX}"


def commit(
    directory: str, base_offset: Offset, end_offset: Offset, token: str, calls: SystemCalls
) -> None:
    """From here on the cleaned segment counts. Blocking; raises OSError."""
    calls.sync_directory(directory)
    calls.rename(
        cleaned_path(directory, base_offset, token), _swap_path(directory, base_offset, end_offset)
    )
    calls.sync_directory(directory)


def apply(directory: str, bases: Sequence[Offset], end_offset: Offset, calls: SystemCalls) -> None:
    """Delete what was replaced and give the cleaned segment its name. Raises OSError.

    The name that both have goes last: as long as the `.swap` file is there, this can be done again.
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
    """An index is never needed; it only saves reading the segment."""
    with contextlib.suppress(FileNotFoundError):
        calls.rename(
            cleaned_index_path(directory, base_offset, token),
            f"{directory}/{base_offset:020d}.index",
        )


def discard_cleaned(directory: str, calls: SystemCalls) -> None:
    """Remove what a cleaner left that did not come to its end."""
    for name in calls.list_names(directory):
        if name.endswith(CLEANED_SUFFIX):
            _unlink(f"{directory}/{name}", calls)


def finish_committed(directory: str, calls: SystemCalls) -> list[Offset]:
    """After a crash: go the rest of the way of each swap that was decided; the first offsets of
    the segments that were replaced. Blocking; raises OSError."""
    discard_cleaned(directory, calls)
    replaced: list[Offset] = []
    names = calls.list_names(directory)
    for name in sorted(names):
        found = _SWAP.fullmatch(name)
        if found is None:
            continue
        base_offset, end_offset = Offset(int(found[1])), Offset(int(found[2]))
        old = [base for base in _bases(names) if base_offset < base < end_offset]
        _log.warning("%s/%s: finishing what a crash cut short", directory, name)
        # Those behind the first are gone for certain before the name that tells of them is.
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
