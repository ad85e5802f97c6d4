"""Announces to the other brokers which groups this one leads, and keeps their announcements."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress

from kafkaesque.broker.cluster.rules.leader_table import (
    Announcement,
    LeaderTable,
    decode_announcements,
    encode_announcements,
)
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.model.ids import GroupId, LeaderEpoch, NodeId, node_of

Post = Callable[[NodeId, bytes], None]


class Leaders:
    """The known leader of every group.

    `post` sends announcements to a broker, best effort: a new link gets all of them again.
    """

    __slots__ = ("_changed", "_node_id", "_post", "_table", "revision")

    def __init__(self, node_id: NodeId, is_deleted: Callable[[GroupId], bool], post: Post) -> None:
        self._node_id = node_id
        self._post = post
        self._table = LeaderTable(is_deleted)
        self._changed: set[asyncio.Future[None]] = set()
        self.revision = 0
        """Grows with every change."""

    def get(self, group: GroupId) -> Announcement | None:
        return self._table.get(group)

    def announce(self, replicas: Iterable[Replica], peers: Collection[NodeId]) -> None:
        """Sends `peers` the groups that this node leads, where that or the in-sync set changed."""
        news = []
        for replica in replicas:
            if replica.is_leader:
                in_sync = [node_of(member) for member in replica.in_sync()]
                epoch = LeaderEpoch(replica.leadership.term)
                changed = self._table.lead(replica.group, epoch, self._node_id, in_sync)
                if changed is not None:
                    news.append(changed)
        if news:
            self._wake()
            body = encode_announcements(news)
            for peer in peers:
                self._post(peer, body)

    def send_all(self, peer: NodeId) -> None:
        """A link has come up: sends everything, since the peer may have missed any of it."""
        led = self._table.announce_all(self._node_id)
        if led:
            self._post(peer, encode_announcements(led))

    def receive(self, body: bytes) -> None:
        if self._table.merge(decode_announcements(body)):
            self._wake()

    def forget_deleted(self) -> None:
        self._table.forget_deleted()

    async def wait_elected(self, groups: Collection[GroupId], timeout_seconds: float) -> None:
        """Waits until every one of `groups` has a known leader, or the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                while any(self._table.get(group) is None for group in groups):
                    await self._change()

    async def wait_for_leader(self, group: GroupId, node_id: NodeId) -> None:
        """Waits until `node_id` leads `group`."""
        while (leader := self._table.get(group)) is None or leader.node_id != node_id:
            await self._change()

    async def _change(self) -> None:
        change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._changed.add(change)
        try:
            await change
        finally:
            self._changed.discard(change)

    def _wake(self) -> None:
        self.revision += 1
        for future in tuple(self._changed):
            if not future.done():
                future.set_result(None)
