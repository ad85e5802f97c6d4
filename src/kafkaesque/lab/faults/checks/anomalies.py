"""The anomalies by name: what each one means and when it is legal. No I/O.

Names and definitions follow Jepsen's kafka workload; those marked (ours) check additional guarantees of
our own broker.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from kafkaesque.lab.faults.checks.history import Key, Terms, Value


class Name(StrEnum):
    """Every anomaly that a history can show."""

    INCONSISTENT_OFFSETS = "inconsistent-offsets"
    DUPLICATE = "duplicate"
    LOST_WRITE = "lost-write"
    UNSEEN = "unseen"
    VANISHED = "vanished"
    OFFSET_HOLE = "offset-hole"
    DAMAGE_SERVED = "damage-served"
    PHANTOM = "phantom"
    G1A = "G1a"
    PRECOMMITTED_READ = "precommitted-read"
    POLL_SKIP = "poll-skip"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    SUBSCRIBED_POLL_SKIP = "subscribed-poll-skip"
    SUBSCRIBED_NONMONOTONIC_POLL = "subscribed-nonmonotonic-poll"
    INT_POLL_SKIP = "int-poll-skip"
    INT_NONMONOTONIC_POLL = "int-nonmonotonic-poll"
    NONMONOTONIC_SEND = "nonmonotonic-send"
    INT_NONMONOTONIC_SEND = "int-nonmonotonic-send"
    INT_SEND_SKIP = "int-send-skip"
    G0 = "G0"
    G1C = "G1c"
    TORN_TRANSACTION = "torn-transaction"


MEANINGS: Final[dict[Name, str]] = {
    Name.INCONSISTENT_OFFSETS: "one offset was seen with two values",
    Name.DUPLICATE: "one value is at two offsets",
    Name.LOST_WRITE: "a committed value is missing though a later one was read",
    Name.UNSEEN: "an acknowledged value was never read to the end",
    Name.VANISHED: "a value was served once and is missing at the end (ours)",
    Name.OFFSET_HOLE: "an offset in the middle has no record (ours)",
    Name.DAMAGE_SERVED: "bytes that were damaged on disk were served as a record (ours)",
    Name.PHANTOM: "a value was read that no client sent to this key (ours)",
    Name.G1A: "a value was read whose send definitely failed",
    Name.PRECOMMITTED_READ: "a transaction read what it wrote itself",
    Name.POLL_SKIP: "a consumer skipped records between two polls",
    Name.NONMONOTONIC_POLL: "a consumer went back between two polls",
    Name.SUBSCRIBED_POLL_SKIP: "the same for a group member: legal, its partitions move",
    Name.SUBSCRIBED_NONMONOTONIC_POLL: "the same for a group member: legal, its partitions move",
    Name.INT_POLL_SKIP: "a consumer skipped records inside one poll",
    Name.INT_NONMONOTONIC_POLL: "a consumer went back inside one poll",
    Name.NONMONOTONIC_SEND: "a producer's later record is before its earlier one",
    Name.INT_NONMONOTONIC_SEND: "the same inside one operation",
    Name.INT_SEND_SKIP: "foreign records between two of one transaction: legal",
    Name.G0: "transactions wrote in different orders to different keys: legal",
    Name.G1C: "transactions read from one another in a cycle",
    Name.TORN_TRANSACTION: "a reader saw a part of a transaction (ours)",
}

REORDERED: Final = frozenset(
    {
        Name.NONMONOTONIC_SEND,
        Name.INT_NONMONOTONIC_SEND,
        Name.NONMONOTONIC_POLL,
        Name.INT_NONMONOTONIC_POLL,
    }
)
"""Order breaks, for the one figure `reordered`."""

_ALWAYS_LEGAL: Final = frozenset(
    {
        Name.SUBSCRIBED_POLL_SKIP,
        Name.SUBSCRIBED_NONMONOTONIC_POLL,
        Name.INT_SEND_SKIP,
        Name.G0,
    }
)


class Anomaly(NamedTuple):
    """One occurrence in a history."""

    name: Name
    key: Key | None
    values: tuple[Value, ...]
    offsets: tuple[int, ...]
    operations: tuple[int, ...]
    """Indexes of the operations that show it."""
    text: str


def legal_under(terms: Terms) -> frozenset[Name]:
    """The anomalies that are legal under these terms."""
    legal = set(_ALWAYS_LEGAL)
    if not terms.idempotent:
        legal |= {Name.DUPLICATE, Name.NONMONOTONIC_SEND, Name.INT_NONMONOTONIC_SEND}
    if not terms.final_reads_complete:
        legal |= {Name.UNSEEN, Name.VANISHED}
    if not terms.dense_offsets:
        legal.add(Name.OFFSET_HOLE)
    return frozenset(legal)
