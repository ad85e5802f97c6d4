"""Samples of high watermarks and last stable offsets while a run lasts, and the check of the samples.

The rules: a high watermark or last stable offset that a client has seen never goes back, whichever broker
leads later; no high watermark is below a last stable offset seen before it; an epoch has one leader; a
client that has seen an epoch sees no older one. A broker that does not lead, or is not certain to, must
refuse the request, so every answer counts. `check_samples` is pure; `WatermarkSampler` sends the requests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkaesque.lab.harness.broker_admin import BrokerAdmin, Place

_EVERY_S: Final = 0.1
_TIMEOUT_S: Final = 0.5
FINDINGS_MAX: Final = 5


class WatermarkSample(NamedTuple):
    """One broker's answer about one partition, and when it was requested and received."""

    requested_us: int
    answered_us: int
    node: int
    place: Place
    epoch: int
    offset: int
    is_stable: bool = False
    """Whether this is the last stable offset rather than the high watermark."""

    def __str__(self) -> str:
        name = "last stable offset" if self.is_stable else "high watermark"
        return (
            f"node {self.node} reported {name} {self.offset} in epoch {self.epoch} "
            f"({self.requested_us / 1e6:.3f} to {self.answered_us / 1e6:.3f} s)"
        )


def check_samples(samples: Sequence[WatermarkSample]) -> list[str]:
    """Violations of the rules, at most FINDINGS_MAX of each kind and partition."""
    by_place: dict[Place, list[WatermarkSample]] = {}
    for sample in sorted(samples, key=lambda one: one.answered_us):
        by_place.setdefault(sample.place, []).append(sample)
    found: list[str] = []
    for place, rows in by_place.items():
        name = f"{place[0]}-{place[1]}"
        found += [f"{name}: {text}" for text in list(_regressions(rows))[:FINDINGS_MAX]]
        found += [f"{name}: {text}" for text in list(_shared_epochs(rows))[:FINDINGS_MAX]]
    return found


def _regressions(rows: Sequence[WatermarkSample]) -> Iterator[str]:
    stable = [sample for sample in rows if sample.is_stable]
    marks = [sample for sample in rows if not sample.is_stable]
    yield from _decreases("the high watermark went back", marks, marks, _offset)
    yield from _decreases("the last stable offset went back", stable, stable, _offset)
    yield from _decreases(
        "the last stable offset passed the high watermark", stable, marks, _offset
    )
    yield from _decreases("the leader epoch went back", rows, rows, _epoch)


def _decreases(
    what: str,
    earlier: Iterable[WatermarkSample],
    later: Iterable[WatermarkSample],
    value: Callable[[WatermarkSample], int],
) -> Iterator[str]:
    """Yields each sample of `later` with a lower value than one of `earlier` answered before its request.

    Two samples that overlap in time have no order. `earlier` is sorted by answer time.
    """
    answered = iter(earlier)
    pending = next(answered, None)
    highest: WatermarkSample | None = None
    for sample in sorted(later, key=lambda one: one.requested_us):
        while pending is not None and pending.answered_us < sample.requested_us:
            if highest is None or value(pending) > value(highest):
                highest = pending
            pending = next(answered, None)
        if highest is not None and value(sample) < value(highest):
            yield f"{what}: {highest}, then {sample}"


def _offset(sample: WatermarkSample) -> int:
    return sample.offset


def _epoch(sample: WatermarkSample) -> int:
    return sample.epoch


def _shared_epochs(rows: Sequence[WatermarkSample]) -> Iterator[str]:
    leaders: dict[int, WatermarkSample] = {}
    for sample in rows:
        first = leaders.setdefault(sample.epoch, sample)
        if first.node != sample.node:
            yield f"one epoch has two leaders: {first}, and {sample}"


class WatermarkSampler:
    """Queries every broker ten times a second, in one thread per broker, so that a paused broker
    delays only its own answers."""

    def __init__(
        self, addresses: Sequence[str], places: Sequence[Place], now_us: Callable[[], int]
    ) -> None:
        self._places = places
        self._now_us = now_us
        self._ended = threading.Event()
        self._samples: list[list[WatermarkSample]] = [[] for _ in addresses]
        self._threads = [
            threading.Thread(
                target=self._sample, args=(node, address), name=f"watermarks-{node}", daemon=True
            )
            for node, address in enumerate(addresses)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> list[WatermarkSample]:
        """Stop, and return all samples."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        return [sample for rows in self._samples for sample in rows]

    def _sample(self, node: int, address: str) -> None:
        admin = BrokerAdmin(address, _TIMEOUT_S)
        while not self._ended.wait(_EVERY_S):
            with suppress(OSError):
                # In this order: a last stable offset must not exceed a later high watermark.
                for is_stable in (True, False):
                    self._samples[node] += self._query(admin, node, is_stable)
        admin.close()

    def _query(self, admin: BrokerAdmin, node: int, is_stable: bool) -> list[WatermarkSample]:
        requested_us = self._now_us()
        marks = admin.watermarks(self._places, read_committed=is_stable)
        answered_us = self._now_us()
        return [
            WatermarkSample(
                requested_us, answered_us, node, place, mark.epoch, mark.offset, is_stable
            )
            for place, mark in marks.items()
        ]
