"""Checks what clients of the coordination service saw. Pure.

*Registers*: each node is one. A version counts its writes, so the order of all writes is known. A
history is linearizable if and only if real time never contradicts that order (an operation that ended
before another began precedes it) and every read returns the value written as its version.

*Watches* have etcd's six properties: ordered, unique, atomic, reliable, resumable, bookmarkable.
Each is stated at its check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from heapq import heappop, heappush
from itertools import pairwise
from typing import TypeAlias

from kafkaesque.broker.coordination.rules.vocabulary import EventType
from kafkaesque.lab.faults.znode_connection import WatchEvent


class Kind(Enum):
    SYNCED_READ = "synced read"
    PLAIN_READ = "plain read"
    WRITE = "write"
    COMPARE_AND_SET = "compare and set"


class Ending(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RegisterOperation:
    """`version` is the version written or read; `expected` that of a compare-and-set."""

    client: int
    path: str
    kind: Kind
    ending: Ending
    begun_us: int
    ended_us: int
    value: bytes
    version: int = -1
    mzxid: int = -1
    expected: int = -1

    @property
    def is_write(self) -> bool:
        return self.kind in (Kind.WRITE, Kind.COMPARE_AND_SET)

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.path} version {self.version} by client {self.client}"


@dataclass(frozen=True, slots=True)
class ReadSeen:
    """The reply to a read, in its position among the events."""

    zxid: int
    path: str
    version: int
    mzxid: int


@dataclass(frozen=True, slots=True)
class ReplySeen:
    zxid: int


Seen: TypeAlias = WatchEvent | ReadSeen | ReplySeen


@dataclass(slots=True)
class ConnectionHistory:
    """Everything received on one connection, in order.

    From position `watching_from` of `seen` on, a persistent watch covers all registers; before that,
    only the resumed one-shot watches do.
    """

    client: int
    resumed: Mapping[str, int] = field(default_factory=dict)
    """Paths whose one-shot watch was resumed, with the mzxid at which it was first set."""
    seen: list[Seen] = field(default_factory=list)
    watching_from: int = 0


# -- registers -----------------------------------------------------------------------------------


def check_registers(operations: Iterable[RegisterOperation]) -> list[str]:
    by_path: dict[str, list[RegisterOperation]] = defaultdict(list)
    for operation in operations:
        by_path[operation.path].append(operation)
    return [text for path in sorted(by_path) for text in _check_register(by_path[path])]


def _check_register(operations: Sequence[RegisterOperation]) -> Iterator[str]:
    written: dict[int, RegisterOperation] = {}
    for operation in operations:
        if operation.is_write and operation.ending is Ending.DONE:
            if operation.version in written:
                yield f"{operation} and {written[operation.version]} are one version"
            written[operation.version] = operation
    in_order = [written[version] for version in sorted(written)]
    for earlier, later in pairwise(in_order):
        if earlier.mzxid >= later.mzxid:
            yield f"{later} has an earlier zxid than {earlier}"
    yield from _check_values(operations, written)
    yield from _check_comparisons(operations)
    yield from _check_real_time(operations, written)
    yield from _check_sessions(operations)


def _check_values(
    operations: Sequence[RegisterOperation], written: Mapping[int, RegisterOperation]
) -> Iterator[str]:
    """A read returns the value written as its version; a write with unknown outcome has at most one."""
    unknown = {op.value for op in operations if op.is_write and op.ending is Ending.UNKNOWN}
    found: dict[int, bytes] = {}
    for operation in operations:
        if operation.is_write or operation.ending is not Ending.DONE or operation.version == 0:
            continue
        known = written.get(operation.version)
        if known is not None and known.value != operation.value:
            yield f"{operation} returned {operation.value!r}, but {known.value!r} was written"
        if known is None and operation.value not in unknown:
            yield f"{operation} returned {operation.value!r}, which no client wrote"
        if found.setdefault(operation.version, operation.value) != operation.value:
            yield f"{operation} returned another value than an earlier read of that version"
    for value, count in Counter(found.values()).items():
        if count > 1:
            yield f"{value!r} was read as {count} versions"
    highest = max((*written, *found), default=0)
    missing = highest - len(written)
    if missing > len(unknown):
        yield f"{missing} versions have no writer, {len(unknown)} writes are unknown"


def _check_comparisons(operations: Sequence[RegisterOperation]) -> Iterator[str]:
    for operation in operations:
        is_done = operation.kind is Kind.COMPARE_AND_SET and operation.ending is Ending.DONE
        if is_done and operation.version != operation.expected + 1:
            yield f"{operation} succeeded although version {operation.expected} was expected"


def _check_real_time(
    operations: Sequence[RegisterOperation], written: Mapping[int, RegisterOperation]
) -> Iterator[str]:
    """An operation that ended before another began does not come after it."""
    floor = -1
    ended: list[tuple[int, int]] = []
    for operation in sorted(operations, key=lambda op: op.begun_us):
        while ended and ended[0][0] < operation.begun_us:
            floor = max(floor, heappop(ended)[1])
        if operation.ending is Ending.REFUSED:
            yield from _check_refusal(operation, floor, operations)
            continue
        if operation.ending is not Ending.DONE:
            continue
        if operation.is_write and operation.version <= floor:
            yield f"{operation} is not after version {floor}, which existed before it began"
        if operation.kind is Kind.SYNCED_READ and operation.version < floor:
            yield f"{operation} is stale: version {floor} existed before it began"
        writer = written.get(operation.version)
        if writer is not None and writer.begun_us > operation.ended_us:
            yield f"{operation} ended before its write began"
        heappush(ended, (operation.ended_us, operation.version))


def _check_refusal(
    refused: RegisterOperation, floor: int, operations: Sequence[RegisterOperation]
) -> Iterator[str]:
    """A compare-and-set may fail only if another write may have come before it."""
    if refused.expected != floor:
        return
    could_be = (
        op.is_write
        and op.ending is not Ending.REFUSED
        and op.begun_us < refused.ended_us
        and (op.ending is Ending.UNKNOWN or op.version > floor)
        for op in operations
    )
    if not any(could_be):
        yield f"{refused} failed although version {floor} was the newest"


def _check_sessions(operations: Sequence[RegisterOperation]) -> Iterator[str]:
    """A client never sees an older version than before, on any server."""
    newest: dict[int, int] = {}
    for operation in sorted(operations, key=lambda op: op.ended_us):
        if operation.ending is not Ending.DONE:
            continue
        if operation.version < newest.get(operation.client, -1):
            yield f"{operation} after it had seen version {newest[operation.client]}"
        newest[operation.client] = max(operation.version, newest.get(operation.client, -1))


# -- watches -------------------------------------------------------------------------------------


def check_watches(
    connections: Iterable[ConnectionHistory], transactions: Mapping[int, frozenset[str]]
) -> list[str]:
    """`transactions`: the paths that each transaction changed, by its zxid."""
    return [text for one in connections for text in _check_connection(one, transactions)]


def _check_connection(
    one: ConnectionHistory, transactions: Mapping[int, frozenset[str]]
) -> Iterator[str]:
    for rule in (_ordered, _unique, _bookmarkable, _reliable, _resumable):
        for text in rule(one):
            yield f"client {one.client}, {rule.__name__.strip('_')}: {text}"
    for text in _atomic(one, transactions):
        yield f"client {one.client}, atomic: {text}"


def _ordered(one: ConnectionHistory) -> Iterator[str]:
    """Events arrive in the order of the changes."""
    last = -1
    for seen in one.seen:
        if isinstance(seen, WatchEvent):
            if seen.zxid < last:
                yield f"{seen} after zxid {last}"
            last = seen.zxid


def _unique(one: ConnectionHistory) -> Iterator[str]:
    """A change causes one event, even for a client with several watches on it."""
    counts = Counter(seen for seen in one.seen if isinstance(seen, WatchEvent))
    resumed = set(one.resumed)
    for event, count in counts.items():
        # A resumed watch may report a past change once more.
        if count > 1 + (event.path in resumed):
            yield f"{event} arrived {count} times"


def _bookmarkable(one: ConnectionHistory) -> Iterator[str]:
    """After a reply with a zxid, no event with that zxid or an earlier one arrives."""
    mark = -1
    for seen in one.seen:
        if isinstance(seen, WatchEvent):
            if seen.zxid <= mark:
                yield f"{seen} after a reply with zxid {mark}"
        else:
            mark = max(mark, seen.zxid)


def _reliable(one: ConnectionHistory) -> Iterator[str]:
    """Between two reads of a node, one event arrives per version written in between."""
    last: dict[str, int] = {}
    events: Counter[str] = Counter()
    for seen in one.seen:
        if isinstance(seen, WatchEvent):
            if seen.type is EventType.NODE_DATA_CHANGED:
                events[seen.path] += 1
        elif isinstance(seen, ReadSeen):
            if seen.path in last and seen.version - last[seen.path] != events[seen.path]:
                yield (
                    f"{seen.path} went from version {last[seen.path]} to {seen.version} "
                    f"with {events[seen.path]} events"
                )
            last[seen.path] = seen.version
            events[seen.path] = 0


def _resumable(one: ConnectionHistory) -> Iterator[str]:
    """After a reconnect, the event of a change in between arrives before any newer data."""
    notified: set[str] = set()
    for seen in one.seen:
        if isinstance(seen, WatchEvent):
            notified.add(seen.path)
        elif isinstance(seen, ReadSeen) and seen.path in one.resumed:
            if seen.mzxid != one.resumed[seen.path] and seen.path not in notified:
                yield f"{seen.path} changed at {seen.mzxid}, and no event arrived before a read"
            notified.add(seen.path)


def _atomic(one: ConnectionHistory, transactions: Mapping[int, frozenset[str]]) -> Iterator[str]:
    """The events of one transaction arrive without anything in between."""
    position = one.watching_from
    while position < len(one.seen):
        first = one.seen[position]
        if not isinstance(first, WatchEvent) or first.zxid not in transactions:
            position += 1
            continue
        group = []
        while position < len(one.seen):
            seen = one.seen[position]
            if not isinstance(seen, WatchEvent) or seen.zxid != first.zxid:
                break
            group.append(seen.path)
            position += 1
        if not transactions[first.zxid] <= set(group):
            yield f"zxid {first.zxid} changed {sorted(transactions[first.zxid])}, events arrived for {group}"
