"""What no reader may ever see: values that nobody sent, that failed, that were damaged."""

from __future__ import annotations

from collections.abc import Iterator

from kafkaesque.lab.faults.checks.anomalies import Anomaly, Name
from kafkaesque.lab.faults.checks.history import Key, Outcome
from kafkaesque.lab.faults.checks.observations import KeyLog, Observations


def find_read_anomalies(observed: Observations) -> Iterator[Anomaly]:
    for key, log in observed.keys.items():
        yield from _phantoms(key, log)
        yield from _aborted_reads(key, log)
    yield from _damage_served(observed)


def _phantoms(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    """Polls of every outcome count: bytes of somebody else are never right."""
    for value in log.first_seen.keys() - log.writers.keys():
        offset = log.offset_of[value]
        yield Anomaly(
            Name.PHANTOM,
            key,
            (value,),
            (offset,),
            (log.first_seen[value],),
            f"offset {offset} holds {value!r}, which nobody sent to this key",
        )


def _aborted_reads(key: Key, log: KeyLog) -> Iterator[Anomaly]:
    for value, writer in log.writers.items():
        if writer.outcome is Outcome.FAIL and value in log.ok_read:
            yield Anomaly(
                Name.G1A,
                key,
                (value,),
                (log.offset_of[value],),
                (writer.index, log.first_seen[value]),
                f"value {value} was read, and its send definitely failed",
            )


def _damage_served(observed: Observations) -> Iterator[Anomaly]:
    """Whoever finishes a run has damaged the bytes for good: final readers cannot get them."""
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
