"""One subscription of a text client: its positions and its unacknowledged messages.

The next CONS, or QUIT, acknowledges what the last CONS showed. A connection that just ends does not,
and the next reader of its partitions gets those messages again: at-least-once delivery.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, NamedTuple

from kafkaesque.broker.groups.consumer_protocol import Assignment
from kafkaesque.broker.text.membership import GroupMembership
from kafkaesque.broker.text.requests import ClusterRequestFailed, Requests
from kafkaesque.broker.text.rules.commands import Consume, matches
from kafkaesque.model.errors import ErrorCode
from kafkaesque.records.codec import Record

MESSAGES_MAX: Final = 100
"""The most messages of one CONS."""
FETCH_BYTES: Final = 256 * 1024
FETCHES_AT_ONCE: Final = 16
"""Partitions fetched at once: bounds the memory of one client."""
WAIT_MS: Final = 500
"""How long a CONS waits if there are no messages."""

Place = tuple[str, int]


class Shown(NamedTuple):
    messages: list[tuple[Place, Record]]
    more: dict[Place, int]
    """The next offset of partitions that have more."""


class TextSubscription:
    """Reads for a membership that has been started."""

    def __init__(self, requests: Requests, membership: GroupMembership) -> None:
        self._requests = requests
        self.membership = membership
        self._positions: dict[Place, int] = {}
        """Where the next CONS starts, in this generation."""
        self._unacknowledged: dict[Place, int] = {}
        self._generation = -1

    async def consume(self, command: Consume) -> Shown:
        """Messages from the group's offsets on, or from `command.offset` on."""
        if command.offset is not None:
            return await self._replay(command, command.offset)
        await self.acknowledge()
        assignment = await self.membership.joined()
        await self._begin(assignment)
        places = [place for place in self._positions if matches(command.topics, place[0])]
        shown = await self._read({place: self._positions[place] for place in places})
        for place, record in shown.messages:
            # Moved to the end: the next CONS starts with partitions that were not shown now.
            self._positions.pop(place)
            self._positions[place] = self._unacknowledged[place] = record.offset + 1
        return shown

    async def acknowledge(self) -> None:
        """Commits what the last CONS showed, unless its partitions were reassigned since."""
        shown, self._unacknowledged = self._unacknowledged, {}
        if shown:
            with suppress(ClusterRequestFailed):
                await self.membership.commit(shown, self._generation)

    async def leave(self) -> None:
        await self.membership.leave()

    async def _begin(self, assignment: Assignment) -> None:
        """Starts at the group's offsets after every rebalance."""
        if self._generation == self.membership.generation:
            return
        self._generation = self.membership.generation
        committed = await self.membership.committed(assignment)
        self._positions = {
            place: committed[place] if place in committed else await self._requests.earliest(*place)
            for place in _places(assignment)
        }

    async def _replay(self, command: Consume, offset: int) -> Shown:
        assignment = await self.membership.joined()
        places = [
            place
            for place in _places(assignment)
            if matches(command.topics, place[0]) and command.partition in (None, place[1])
        ]
        if not places:
            raise ClusterRequestFailed(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "no such partition is assigned to this subscription",
            )
        return await self._read(dict.fromkeys(places, offset))

    async def _read(self, positions: dict[Place, int]) -> Shown:
        """Returns at once if there are messages, else after a short wait."""
        items = list(positions.items())
        shown = Shown([], {})
        for start in range(0, len(items), FETCHES_AT_ONCE):
            await self._fetch(dict(items[start : start + FETCHES_AT_ONCE]), 0, shown)
            if len(shown.messages) >= MESSAGES_MAX:
                break
        if not shown.messages and items:
            await self._fetch(dict(items[:FETCHES_AT_ONCE]), WAIT_MS, shown)
        return shown

    async def _fetch(self, positions: dict[Place, int], wait_ms: int, shown: Shown) -> None:
        """Adds messages to `shown`, up to MESSAGES_MAX."""
        reads = await asyncio.gather(
            *(
                self._requests.fetch(*place, offset, FETCH_BYTES, wait_ms)
                for place, offset in positions.items()
            ),
            return_exceptions=True,
        )
        messages, more = shown
        for (place, offset), read in zip(positions.items(), reads, strict=True):
            if (
                isinstance(read, ClusterRequestFailed)
                and read.code is ErrorCode.OFFSET_OUT_OF_RANGE
            ):
                await self._reset(place, offset)
                continue
            if isinstance(read, BaseException):
                raise read
            taken = read.records[: MESSAGES_MAX - len(messages)]
            messages += [(place, record) for record in taken]
            next_offset = taken[-1].offset + 1 if taken else offset
            if next_offset < read.high_watermark:
                more[place] = next_offset

    async def _reset(self, place: Place, offset: int) -> None:
        """The offset is out of range: continues at the start of the log, as any consumer."""
        earliest = await self._requests.earliest(*place)
        if self._positions.get(place) == offset and earliest > offset:
            self._positions[place] = earliest


def _places(assignment: Assignment) -> Iterable[Place]:
    return [(topic, number) for topic, found in assignment.items() for number in found]
