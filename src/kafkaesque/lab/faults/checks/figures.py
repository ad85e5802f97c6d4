"""Figures of a history: counts, gaps without acknowledgements, lag of readers. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from kafkaesque.lab.faults.checks.history import ClientOperation, Function, Key, OperationOutcome
from kafkaesque.lab.faults.checks.observations import Observations

_US_PER_MS = 1000


class Fault(NamedTuple):
    """A fault that began at this moment and may affect senders to these keys."""

    at_us: int
    keys: frozenset[Key]


class Lag(NamedTuple):
    """The time between a record becoming known and the start of a poll that did not return it."""

    p50_ms: float
    p99_ms: float
    worst_ms: float


class Figures(NamedTuple):
    """The figures of a report."""

    acknowledged: int
    unknown: int
    failed: int
    polled: int
    longest_gap_ms: int
    """The longest time without an acknowledgement of one key while records were sent to it."""
    lag: Lag
    consumed_times: dict[int, int]
    """Under subscribe: how many values were consumed how often. Exactly once is {1: all}."""


def count_figures(observed: Observations) -> Figures:
    outcomes: Counter[OperationOutcome] = Counter()
    polled = 0
    for operation, sends in observed.sending:
        outcomes[operation.outcome] += len(sends)
    for operation in observed.reading:
        polled += sum(len(rows) for poll in operation.polls for rows in poll.records.values())
    gaps = gaps_by_key([operation for operation, _ in observed.sending])
    return Figures(
        acknowledged=outcomes[OperationOutcome.OK],
        unknown=outcomes[OperationOutcome.INFO],
        failed=outcomes[OperationOutcome.FAIL],
        polled=polled,
        longest_gap_ms=max(
            (end - start for rows in gaps.values() for start, end in rows), default=0
        )
        // _US_PER_MS,
        lag=realtime_lag(observed),
        consumed_times=consumed_times(observed.reading),
    )


def acknowledgement_gaps(sending: Sequence[ClientOperation]) -> list[tuple[int, int]]:
    """The times between acknowledgements of operations that send, as (start, end) in microseconds, from the first send on."""
    if not sending:
        return []
    moments = sorted(one.completed_us for one in sending if one.outcome is OperationOutcome.OK)
    moments.insert(0, min(one.invoked_us for one in sending))
    if moments[-1] < max(one.invoked_us for one in sending):
        # The last operations were never acknowledged.
        moments.append(max(one.completed_us for one in sending))
    return list(pairwise(moments))


def gaps_by_key(sending: Sequence[ClientOperation]) -> dict[Key, list[tuple[int, int]]]:
    """The gaps of each key: when one of several leaders dies, the keys of the others are not affected."""
    by_key: dict[Key, list[ClientOperation]] = {}
    for operation in sending:
        for key in {sent.key for sent in operation.sends}:
            by_key.setdefault(key, []).append(operation)
    return {key: acknowledgement_gaps(operations) for key, operations in by_key.items()}


def gaps_of_faults(sending: Sequence[ClientOperation], faults: Sequence[Fault]) -> list[int]:
    """For each fault the longest time without an acknowledgement of any key that it hit, until the
    next fault, in ms."""
    gaps = gaps_by_key(sending)
    last = max((end for rows in gaps.values() for _, end in rows), default=0)
    ends = [*(fault.at_us for fault in faults[1:]), last]
    longest = []
    for fault, following in zip(faults, ends, strict=True):
        # A gap that lasts into the next fault is cut there: the rest belongs to that fault.
        during = [
            min(end, following) - start
            for key in fault.keys
            for start, end in gaps.get(key, ())
            if end > fault.at_us and start < following
        ]
        longest.append(max(during, default=0) // _US_PER_MS)
    return longest


def percentile(values: Sequence[float], share: float) -> float:
    """The value at `share` (0 to 1) of the sorted values; 0 of none."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def realtime_lag(observed: Observations) -> Lag:
    known = {key: _known_from(times) for key, times in _first_known(observed).items()}
    positions: dict[int, dict[Key, int]] = {}
    lags: list[float] = []
    for operation in observed.reading:
        at = positions.setdefault(operation.process, {})
        if operation.f in (Function.ASSIGN, Function.SUBSCRIBE):
            at = positions[operation.process] = {k: o for k, o in at.items() if k in operation.keys}
        for key in operation.rebalanced:
            at.pop(key, None)
        if operation.f is not Function.POLL or operation.outcome is not OperationOutcome.OK:
            continue
        for poll in operation.polls:
            for key, records in poll.records.items():
                if records:
                    at[key] = records[-1][0] + 1
        for key, position in at.items():
            since = known[key].get(position) if key in known else None
            if since is not None:
                lags.append(max(0, operation.invoked_us - since) / _US_PER_MS)
    return Lag(percentile(lags, 0.5), percentile(lags, 0.99), max(lags, default=0.0))


def _first_known(observed: Observations) -> dict[Key, dict[int, int]]:
    """For each offset, the earliest moment at which some client knew that it exists."""
    known: dict[Key, dict[int, int]] = {}
    for operation, sends in observed.sending:
        if operation.outcome is not OperationOutcome.OK:
            continue
        for sent in sends:
            if sent.offset is not None:
                _keep_earlier(known.setdefault(sent.key, {}), sent.offset, operation.completed_us)
    for operation in observed.reading:
        if operation.f is Function.FINAL or operation.outcome is not OperationOutcome.OK:
            continue
        for poll in operation.polls:
            for key, records in poll.records.items():
                if records:
                    # The last offset of a poll is enough: earlier ones existed by then as well.
                    _keep_earlier(known.setdefault(key, {}), records[-1][0], operation.completed_us)
    return known


def _keep_earlier(times: dict[int, int], offset: int, moment: int) -> None:
    if moment < times.get(offset, moment + 1):
        times[offset] = moment


def _known_from(times: dict[int, int]) -> dict[int, int]:
    """For each offset, since when it or a later one was known."""
    known: dict[int, int] = {}
    earliest: int | None = None
    following = max(times, default=-1) + 1
    for offset in sorted(times, reverse=True):
        for between in range(offset + 1, following):
            if earliest is not None:
                known[between] = earliest
        earliest = times[offset] if earliest is None else min(earliest, times[offset])
        known[offset] = earliest
        following = offset
    return known


def consumed_times(operations: Sequence[ClientOperation]) -> dict[int, int]:
    subscribed: set[int] = set()
    times: Counter[tuple[Key, object]] = Counter()
    for operation in operations:
        if operation.f is Function.SUBSCRIBE:
            subscribed.add(operation.process)
        elif operation.f is Function.ASSIGN:
            subscribed.discard(operation.process)
        if operation.process not in subscribed or operation.outcome is not OperationOutcome.OK:
            continue
        for poll in operation.polls:
            for key, records in poll.records.items():
                times.update((key, value) for _, value in records)
    return dict(sorted(Counter(times.values()).items()))
