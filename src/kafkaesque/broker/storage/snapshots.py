"""Snapshots of state at an offset of a log, saved next to its segments.

The content is opaque (today: the state of idempotent producers). Each file is written atomically with
a checksum. A damaged snapshot counts as absent, because the state can be rebuilt from an older one.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Final

from kafkaesque.broker.storage import durable_state
from kafkaesque.broker.storage.open_files import REAL_CALLS, SystemCalls
from kafkaesque.model.errors import StorageFailed
from kafkaesque.model.ids import Offset

_log = logging.getLogger("kafkaesque.broker.storage")

_SUFFIX: Final = ".snapshot"


def save_snapshot(
    directory: str, offset: Offset, content: bytes, calls: SystemCalls = REAL_CALLS
) -> None:
    path = _path(directory, offset)
    try:
        durable_state.save(path, content, calls)
    except OSError as error:
        raise StorageFailed(f"cannot write {path}: {error}") from error


def latest_snapshot(
    directory: str, offset: Offset, calls: SystemCalls = REAL_CALLS
) -> tuple[Offset, bytes] | None:
    """The last intact snapshot at or before `offset`, with its offset."""
    for at in reversed(list_snapshots(directory, calls)):
        if at > offset:
            continue
        try:
            content = durable_state.load(_path(directory, at), calls)
        except (durable_state.StateDamaged, OSError) as error:
            _log.warning("ignoring a snapshot that cannot be read: %s", error)
            continue
        if content is not None:
            return at, content
    return None


def list_snapshots(directory: str, calls: SystemCalls = REAL_CALLS) -> list[Offset]:
    """The offsets that have a snapshot, ascending."""
    names = calls.list_names(directory)
    stems = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    return sorted(Offset(int(stem)) for stem in stems if stem.isdecimal())


def delete_snapshots(
    directory: str,
    *,
    before: Offset,
    after: Offset,
    keep: int | None = None,
    calls: SystemCalls = REAL_CALLS,
) -> None:
    """Deletes the snapshots before `before` or after `after`.

    With `keep`, deletes the others too except the last `keep` and the one at `before`, which covers
    records that no longer exist.
    """
    offsets = list_snapshots(directory, calls)
    wanted = [offset for offset in offsets if before <= offset <= after]
    if keep is not None:
        last = wanted[len(wanted) - min(keep, len(wanted)) :]
        wanted = [offset for offset in wanted if offset in last or offset == before]
    for offset in offsets:
        if offset not in wanted:
            with contextlib.suppress(FileNotFoundError):
                calls.unlink(_path(directory, offset))


def _path(directory: str, offset: Offset) -> str:
    return f"{directory}/{offset:020d}{_SUFFIX}"
