"""The registry of consumer groups: the rows that brokers exchange, and the nodes that show them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

import msgspec

from kafkaesque.broker.coordination.rules.paths import name_for
from kafkaesque.broker.coordination.rules.registry import Leaf

OWNER_MARK: Final = 1 << 56
"""Set in the owners of the registries' ephemeral nodes: positive, like session ids, and distinct
from the marks of containers."""


class MemberRow(msgspec.Struct, array_like=True):
    member_id: str
    topics: list[str]
    assignment: dict[str, list[int]]


class GroupRow(msgspec.Struct, array_like=True):
    group_id: str
    members: list[MemberRow]
    offsets: dict[str, dict[int, int]]


class LastAnswers:
    """The last groups of each broker: a broker that answers slowly keeps its groups."""

    __slots__ = ("_rows",)

    def __init__(self) -> None:
        self._rows: dict[int, list[GroupRow]] = {}
        """By broker, the most recent answer last."""

    def update(self, node_id: int, rows: list[GroupRow]) -> None:
        self._rows.pop(node_id, None)
        self._rows[node_id] = rows

    def groups(self, alive: Collection[int]) -> dict[str, GroupRow]:
        """The groups of the brokers that are `alive`; the others are dropped. If two brokers report a
        group, because it moved, the newer answer wins."""
        self._rows = {node_id: rows for node_id, rows in self._rows.items() if node_id in alive}
        return {row.group_id: row for rows in self._rows.values() for row in rows}


def consumer_leaves(groups: Iterable[GroupRow]) -> Iterator[tuple[str, Leaf]]:
    yield "/consumers", Leaf(b"")
    for group in groups:
        if group.group_id:  # a node needs a name
            yield from _group_leaves(f"/consumers/{name_for(group.group_id)}", group)


def _group_leaves(at: str, group: GroupRow) -> Iterator[tuple[str, Leaf]]:
    for part in ("ids", "owners", "offsets"):
        yield f"{at}/{part}", Leaf(b"")
    for member in group.members:
        owner = owner_for(member.member_id)
        subscription = dict.fromkeys(member.topics, 1)
        shown = {"version": 1, "pattern": "static", "subscription": subscription}
        yield f"{at}/ids/{name_for(member.member_id)}", json_leaf(shown, owner)
        for topic, partitions in member.assignment.items():
            for number in partitions:
                yield f"{at}/owners/{topic}/{number}", Leaf(member.member_id.encode(), owner)
    for topic, offsets in group.offsets.items():
        for number, offset in offsets.items():
            yield f"{at}/offsets/{topic}/{number}", Leaf(b"%d" % offset)


def owner_for(member_id: str) -> int:
    """A number that is the same on every broker and after a restart."""
    return OWNER_MARK | zlib.crc32(member_id.encode())


def json_leaf(fields: Mapping[str, object], owner: int = 0) -> Leaf:
    return Leaf(json.dumps(fields, separators=(",", ":")).encode(), owner)
