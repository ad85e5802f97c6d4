"""Checks of the log's contents: duplicates, lost or unseen values, holes, and illegal reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import ClientOperation, Key, OperationOutcome
from kafkaesque.lab.faults.checks.observations import KeyLog, Observations


def find_log_anomalies(observed: Observations) -> Iterator[Anomaly]:
    for key, log in observed.keys.items():
        yield from _inconsistent_offsets(key, log)
        yield from _duplicates(key, log)
        yield from _lost_writes(observed, key, log)
        yield from _unseen(observed, key, log)
        yield from _vanished(observed, key, log)
        yield from _holes(observed, key, log)


def _inconsistent_offsets(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    for offset, values in log.conflicts.items():
        ordered = tuple(sorted(values, key=str))
        yield Anomaly(
            Name.INCONSISTENT_OFFSETS,
            key,
            ordered,
            (offset,),
            _indexes(*(log.writers.get(value) for value in ordered)),
            f"offset {offset} was seen with the values {', '.join(map(str, ordered))}",
        )


def _duplicates(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    for value, offsets in log.more_offsets.items():
        ordered = tuple(sorted(offsets))
        yield Anomaly(
            Name.DUPLICATE,
            key,
            (value,),
            ordered,
            _indexes(log.writers.get(value)),
            f"value {value} is at the offsets {', '.join(map(str, ordered))}",
        )


def _lost_writes(observed: Observations, key: Key, log: KeyLog) -> Iterator[Anomaly]:
    """Before the furthest value read, no committed value may be missing."""
    bound = max((_rank(log, log.first_offset(value)) for value in log.ok_read), default=-1)
    for value, writer in log.writers.items():
        if value in log.ok_read:
            continue
        offset = log.last_offset(value)
        if offset is None or log.index[offset] > bound or observed.is_damaged(key, offset):
            continue
        if observed.must_have_committed(writer):
            yield Anomaly(
                Name.LOST_WRITE,
                key,
                (value,),
                (offset,),
                (writer.index,),
                f"value {value} at offset {offset} was never read, later ones were",
            )


def _unseen(observed: Observations, key: Key, log: KeyLog) -> Iterator[Anomaly]:
    seen = log.final_read if observed.has_final_reads else log.ok_read
    for value, writer in log.writers.items():
        if writer.outcome is not OperationOutcome.OK or value in seen:
            continue
        offset = log.last_offset(value)
        if not observed.is_damaged(key, offset):
            yield Anomaly(
                Name.UNSEEN,
                key,
                (value,),
                () if offset is None else (offset,),
                (writer.index,),
                f"value {value} was acknowledged at offset {offset} and is not there at the end",
            )


def _vanished(observed: Observations, key: Key, log: KeyLog) -> Iterator[Anomaly]:
    if not observed.has_final_reads:
        return
    for value in sorted(log.ok_read - log.final_read, key=str):
        offset = log.last_offset(value)
        if not observed.is_damaged(key, offset):
            yield Anomaly(
                Name.VANISHED,
                key,
                (value,),
                () if offset is None else (offset,),
                (log.first_seen[value],),
                f"value {value} was read at offset {offset} and is not there at the end",
            )


def _holes(observed: Observations, key: Key, log: KeyLog) -> Iterator[Anomaly]:
    """Only between offsets that final readers saw: earlier ones may have been deleted."""
    for before, after in pairwise(sorted(log.final_offsets)):
        missing = [o for o in range(before + 1, after) if not observed.is_damaged(key, o)]
        if missing:
            yield Anomaly(
                Name.OFFSET_HOLE,
                key,
                (log.value_at[before], log.value_at[after]),
                (before, after),
                (),
                f"there is no record between the offsets {before} and {after}",
            )


def _rank(log: KeyLog, offset: int | None) -> int:
    return -1 if offset is None else log.index[offset]


def _indexes(*writers: ClientOperation | None) -> tuple[int, ...]:
    return tuple(writer.index for writer in writers if writer is not None)


def find_read_anomalies(observed: Observations) -> Iterator[Anomaly]:
    for key, log in observed.keys.items():
        yield from _phantoms(key, log)
        yield from _aborted_reads(key, log)
    yield from _damage_served(observed)


def _phantoms(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    """In polls of any outcome: a reader must never get a value that was not sent to the key."""
    for value in log.first_seen.keys() - log.writers.keys():
        offset = log.offset_of[value]
        yield Anomaly(
            Name.PHANTOM,
            key,
            (value,),
            (offset,),
            (log.first_seen[value],),
            f"offset {offset} holds {value!r}, which no client sent to this key",
        )


def _aborted_reads(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    for value, writer in log.writers.items():
        if writer.outcome is OperationOutcome.FAIL and value in log.ok_read:
            yield Anomaly(
                Name.G1A,
                key,
                (value,),
                (log.offset_of[value],),
                (writer.index, log.first_seen[value]),
                f"value {value} was read, and its send definitely failed",
            )


def _damage_served(observed: Observations) -> Iterator[Anomaly]:
    """The bytes were damaged for good, so final readers cannot get the original values."""
    for damage in observed.terms.damaged:
        log = observed.log(damage.key)
        for offset in range(damage.first_offset, damage.last_offset + 1):
            if offset in log.final_offsets:
                value = log.value_at[offset]
                yield Anomaly(
                    Name.DAMAGE_SERVED,
                    damage.key,
                    (value,),
                    (offset,),
                    (),
                    f"offset {offset} was damaged on disk and was served",
                )
