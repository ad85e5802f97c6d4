"""The leader of each group, as announced by the leaders to all brokers.

Raft elects leaders group by group, without the controller; every broker needs all of them to answer
Metadata. Of two announcements of one group the later one wins: the higher epoch, which is the Raft
term and has one leader, and within an epoch the higher revision. So announcements may arrive late,
twice and in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import GroupId, LeaderEpoch, NodeId


class Announcement(NamedTuple):
    """One group's leader in one epoch, and its in-sync replicas (leader included, sorted)."""

    group_id: GroupId
    epoch: LeaderEpoch
    revision: int
    """Grows within the epoch with each change that the leader announces."""
    node_id: NodeId
    in_sync: tuple[NodeId, ...]

    @property
    def age(self) -> tuple[int, int]:
        return self.epoch, self.revision


class LeaderTable:
    """The newest announcement of every group. Announcements of groups that `is_deleted` are
    ignored."""

    __slots__ = ("_is_deleted", "_newest")

    def __init__(self, is_deleted: Callable[[GroupId], bool]) -> None:
        self._is_deleted = is_deleted
        self._newest: dict[GroupId, Announcement] = {}

    def __len__(self) -> int:
        return len(self._newest)

    def get(self, group_id: GroupId) -> Announcement | None:
        return self._newest.get(group_id)

    def lead(
        self, group_id: GroupId, epoch: LeaderEpoch, node_id: NodeId, in_sync: Iterable[NodeId]
    ) -> Announcement | None:
        """This node leads. Returns what to announce; None if that is known or the epoch is old."""
        nodes = tuple(sorted(in_sync))
        current = self._newest.get(group_id)
        revision = 0
        if current is not None and current.epoch == epoch:
            if current.in_sync == nodes:
                return None
            revision = current.revision + 1
        announcement = Announcement(group_id, epoch, revision, node_id, nodes)
        return announcement if self.merge([announcement]) else None

    def merge(self, announcements: Iterable[Announcement]) -> list[Announcement]:
        """Keeps the announcements that are newer than the known ones, and returns those."""
        news = []
        for announcement in announcements:
            group_id = announcement.group_id
            current = self._newest.get(group_id)
            is_late = current is not None and announcement.age <= current.age
            if not is_late and not self._is_deleted(group_id):
                self._newest[group_id] = announcement
                news.append(announcement)
        return news

    def announce_all(self, node_id: NodeId) -> list[Announcement]:
        """The groups that `node_id` leads, for a broker that has just connected."""
        return [known for known in self._newest.values() if known.node_id == node_id]

    def forget_deleted(self) -> None:
        """Drops the announcements of deleted groups."""
        for group_id in [known for known in self._newest if self._is_deleted(known)]:
            del self._newest[group_id]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Announcement])


def encode_announcements(announcements: Iterable[Announcement]) -> bytes:
    """About eleven bytes for each group of three replicas."""
    return _encoder.encode(list(announcements))


def decode_announcements(data: bytes | memoryview) -> list[Announcement]:
    """Raises ProtocolError for anything that `encode_announcements` does not write."""
    try:
        announcements: list[Announcement] = _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"announcement of leaders: {error}") from None
    return announcements
