"""Each violation of the coordination service's guarantees is found, and nothing else."""

from __future__ import annotations

import pytest

from kafkaesque.broker.coordination.rules.vocabulary import EventType
from kafkaesque.lab.faults.znode_connection import WatchEvent
from kafkaesque.lab.faults.znode_history import (
    ConnectionHistory,
    Ending,
    Kind,
    ReadSeen,
    RegisterOperation,
    ReplySeen,
    Seen,
    check_registers,
    check_watches,
)

A, B = "/r/0", "/r/1"


def operation(
    kind: Kind,
    begun: int,
    ended: int,
    version: int = -1,
    *,
    value: str | None = None,
    client: int = 0,
    ending: Ending = Ending.DONE,
    expected: int = -1,
) -> RegisterOperation:
    text = (f"v{version}" if value is None else value).encode()
    mzxid = version * 10
    return RegisterOperation(client, A, kind, ending, begun, ended, text, version, mzxid, expected)


def write(begun: int, ended: int, version: int, client: int = 0) -> RegisterOperation:
    return operation(Kind.WRITE, begun, ended, version, client=client)


def read(
    begun: int, ended: int, version: int, client: int = 0, value: str | None = None
) -> RegisterOperation:
    return operation(Kind.SYNCED_READ, begun, ended, version, client=client, value=value)


def unknown(begun: int, ended: int, value: str) -> RegisterOperation:
    return operation(Kind.WRITE, begun, ended, value=value, ending=Ending.UNKNOWN)


GOOD = {
    "writes and reads in turn": [write(0, 1, 1), read(2, 3, 1), write(4, 5, 2), read(6, 7, 2)],
    "overlapping, in either order": [write(0, 10, 2), write(1, 9, 1, 1), read(2, 8, 1, 2)],
    "a write with unknown outcome is read": [unknown(0, 1, "v1"), read(2, 3, 1)],
    "a write with unknown outcome takes effect late": [
        unknown(0, 1, "v2"), write(2, 3, 1), read(4, 5, 1), read(6, 7, 2),
    ],
    "a plain read is old for another client": [
        write(0, 1, 1), write(2, 3, 2), operation(Kind.PLAIN_READ, 4, 5, 1, client=1),
    ],
    "compare and set": [
        write(0, 1, 1),
        operation(Kind.COMPARE_AND_SET, 2, 3, 2, expected=1),
        operation(Kind.COMPARE_AND_SET, 4, 5, value="x", expected=1, ending=Ending.REFUSED),
    ],
}  # fmt: skip

BAD = {
    "stale read": ([write(0, 1, 1), write(2, 3, 2), read(4, 5, 1, 1)], "stale"),
    "lost write": ([write(0, 1, 1), write(2, 3, 1)], "one version"),
    "write in the past": ([write(0, 1, 2), write(2, 3, 1), read(4, 5, 2)], "is not after"),
    "value that no client wrote": ([write(0, 1, 1), read(2, 3, 1, value="other")], "was written"),
    "invented version": ([write(0, 1, 1), read(2, 3, 2)], "no client wrote"),
    "missing writer": ([write(0, 1, 1), write(2, 3, 3)], "no writer"),
    "unknown write twice": (
        [unknown(0, 1, "x"), read(2, 3, 1, value="x"), read(4, 5, 2, value="x")],
        "was read as 2 versions",
    ),
    "client goes back": (
        [
            write(0, 1, 1), write(2, 3, 2),
            operation(Kind.PLAIN_READ, 4, 5, 2, client=1),
            operation(Kind.PLAIN_READ, 6, 7, 1, client=1),
        ],
        "after it had seen",
    ),
    "read before its write": ([read(0, 1, 1), write(2, 3, 1)], "before its write began"),
    "compare without comparing": (
        [write(0, 1, 1), write(2, 3, 2), operation(Kind.COMPARE_AND_SET, 4, 5, 3, expected=1)],
        "although version 1 was expected",
    ),
    "refused without a reason": (
        [
            write(0, 1, 1),
            operation(Kind.COMPARE_AND_SET, 2, 3, value="x", expected=1, ending=Ending.REFUSED),
        ],
        "failed although",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_linearizable_history_has_no_complaint(name: str) -> None:
    assert check_registers(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_history_that_is_not_linearizable_is_found(name: str) -> None:
    history, words = BAD[name]
    assert any(words in text for text in check_registers(history)), check_registers(history)


def changed(zxid: int, path: str = A) -> WatchEvent:
    return WatchEvent(zxid, EventType.NODE_DATA_CHANGED, path)


def seen_read(zxid: int, version: int, path: str = A) -> ReadSeen:
    return ReadSeen(zxid, path, version, zxid)


GOOD_STREAMS: dict[str, tuple[list[Seen], dict[str, int]]] = {
    "events and reads": ([seen_read(5, 1), changed(6), changed(7), seen_read(7, 3)], {}),
    "a transaction": ([ReplySeen(1), changed(6), changed(6, B), ReplySeen(6)], {}),
    "resumed, with its event": ([changed(8), ReplySeen(8), seen_read(8, 4)], {A: 3}),
    "resumed, nothing new": ([ReplySeen(8), ReadSeen(8, A, 1, 3)], {A: 3}),
}
BAD_STREAMS: dict[str, tuple[list[Seen], dict[str, int]]] = {
    "ordered": ([changed(7), changed(6)], {}),
    "unique": ([changed(7), changed(7)], {}),
    "bookmarkable": ([ReplySeen(7), changed(7)], {}),
    "reliable": ([seen_read(5, 1), changed(6), seen_read(7, 3)], {}),
    "resumable": ([ReplySeen(8), seen_read(8, 4)], {A: 3}),
    "atomic": ([ReplySeen(1), changed(6), ReplySeen(6), changed(9)], {}),
}


@pytest.mark.parametrize("name", GOOD_STREAMS)
def test_correct_watches_have_no_complaint(name: str) -> None:
    seen, resumed = GOOD_STREAMS[name]
    assert (
        check_watches(
            [ConnectionHistory(0, resumed, seen)], {6: frozenset((A, B))} if "trans" in name else {}
        )
        == []
    )


def test_resumed_watch_covers_only_its_own_node() -> None:
    """The watch on all registers is set by a separate request, a moment later."""
    seen: list[Seen] = [ReplySeen(5), changed(6), ReplySeen(6), changed(8), changed(8, B)]
    together = {6: frozenset((A, B)), 8: frozenset((A, B))}
    assert check_watches([ConnectionHistory(0, {A: 3}, seen, watching_from=3)], together) == []


@pytest.mark.parametrize("name", BAD_STREAMS)
def test_broken_property_of_watches_is_found(name: str) -> None:
    seen, resumed = BAD_STREAMS[name]
    together = {6: frozenset((A, B))} if name == "atomic" else {}
    found = check_watches([ConnectionHistory(0, resumed, seen)], together)
    assert [text.partition(": ")[0] for text in found] == [f"client 0, {name}"]
