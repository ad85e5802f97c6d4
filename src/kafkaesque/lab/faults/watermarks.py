"""Samples of what leaders say of a partition's committed end while a run lasts, and their judgement.

The rules (research/reliability.md 2.5.2 and 2.5.3): a high watermark that somebody was told never goes
back, whoever leads later, nor does a last stable offset, and no high watermark is below a last stable
offset that was told before it; an epoch has one leader; who was told of an epoch is told of no older one.
A broker that is no leader, or is not certain to be one, must refuse the question, so every answer
counts. `judge_samples` is pure; `WatermarkWatch` asks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkaesque.lab.faults.cluster_sight import Asker, Place

_EVERY_S: Final = 0.1
_TIMEOUT_S: Final = 0.5
FINDINGS_MAX: Final = 5


class Sample(NamedTuple):
    """What one broker answered about one partition, between two moments."""

    asked_us: int
    told_us: int
    node: int
    place: Place
    epoch: int
    offset: int
    is_stable: bool = False
    """Whether it is the last stable offset, and not the high watermark."""

    def __str__(self) -> str:
        name = "last stable offset" if self.is_stable else "high watermark"
        return (
            f"node {self.node} said {name} {self.offset} in epoch {self.epoch} "
            f"({self.asked_us / 1e6:.3f} to {self.told_us / 1e6:.3f} s)"
        )


def judge_samples(samples: Sequence[Sample]) -> list[str]:
    """What is wrong with them, at most a few of each kind."""
    by_place: dict[Place, list[Sample]] = {}
    for sample in sorted(samples, key=lambda one: one.told_us):
        by_place.setdefault(sample.place, []).append(sample)
    found: list[str] = []
    for place, rows in by_place.items():
        name = f"{place[0]}-{place[1]}"
        found += [f"{name}: {text}" for text in list(_going_back(rows))[:FINDINGS_MAX]]
        found += [f"{name}: {text}" for text in list(_shared_epochs(rows))[:FINDINGS_MAX]]
    return found


def _going_back(rows: Sequence[Sample]) -> Iterator[str]:
    stable = [sample for sample in rows if sample.is_stable]
    marks = [sample for sample in rows if not sample.is_stable]
    yield from _falls("the high watermark went back", marks, marks, _offset)
    yield from _falls("the last stable offset went back", stable, stable, _offset)
    yield from _falls("the last stable offset passed the high watermark", stable, marks, _offset)
    yield from _falls("the leader epoch went back", rows, rows, _epoch)


def _falls(
    what: str,
    earlier: Iterable[Sample],
    later: Iterable[Sample],
    value: Callable[[Sample], int],
) -> Iterator[str]:
    """Only answers that had come before the next question was asked are in an order. `earlier` are in
    the order of their answers."""
    told = iter(earlier)
    pending = next(told, None)
    highest: Sample | None = None
    for sample in sorted(later, key=lambda one: one.asked_us):
        while pending is not None and pending.told_us < sample.asked_us:
            if highest is None or value(pending) > value(highest):
                highest = pending
            pending = next(told, None)
        if highest is not None and value(sample) < value(highest):
            yield f"{what}: {highest}, then {sample}"


def _offset(sample: Sample) -> int:
    return sample.offset


def _epoch(sample: Sample) -> int:
    return sample.epoch


def _shared_epochs(rows: Sequence[Sample]) -> Iterator[str]:
    leaders: dict[int, Sample] = {}
    for sample in rows:
        first = leaders.setdefault(sample.epoch, sample)
        if first.node != sample.node:
            yield f"one epoch has two leaders: {first}, and {sample}"


class WatermarkWatch:
    """Asks every broker ten times a second, each in a thread of its own: one that stands still
    delays nobody's answers but its own."""

    def __init__(
        self, addresses: Sequence[str], places: Sequence[Place], now_us: Callable[[], int]
    ) -> None:
        self._places = places
        self._now_us = now_us
        self._ended = threading.Event()
        self._samples: list[list[Sample]] = [[] for _ in addresses]
        self._threads = [
            threading.Thread(
                target=self._watch, args=(node, address), name=f"watch-{node}", daemon=True
            )
            for node, address in enumerate(addresses)
        ]
        for thread in self._threads:
            thread.start()

    def end(self) -> list[Sample]:
        """Ask no more; all samples."""
        self._ended.set()
        for thread in self._threads:
            thread.join()
        return [sample for rows in self._samples for sample in rows]

    def _watch(self, node: int, address: str) -> None:
        asker = Asker(address, _TIMEOUT_S)
        while not self._ended.wait(_EVERY_S):
            with suppress(OSError):
                # In this order: what is stable now is committed in a moment.
                for is_stable in (True, False):
                    self._samples[node] += self._ask(asker, node, is_stable)
        asker.close()

    def _ask(self, asker: Asker, node: int, is_stable: bool) -> list[Sample]:
        asked_us = self._now_us()
        told = asker.watermarks(self._places, read_committed=is_stable)
        told_us = self._now_us()
        return [
            Sample(asked_us, told_us, node, place, mark.epoch, mark.offset, is_stable)
            for place, mark in told.items()
        ]
