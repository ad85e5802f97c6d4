"""Tables that every back end holds in full: the directory of names, and which users are connected.

Both are read from compacted topics outside any consumer group (as a GlobalKTable in Kafka Streams), by
one task, and may lag a moment.
"""

from __future__ import annotations

import asyncio
import fnmatch
import logging
import re
import time
from bisect import bisect_right, insort
from collections.abc import Sequence

from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import Assignment, Log, LogReader, LogUnavailable, Received, Span
from kafkaesque.events.chat import CHAT_DIRECTORY
from kafkaesque.events.envelope import MalformedEvent
from kafkaesque.events.gateway import PRESENCE, decode_presence
from kafkaesque.model.ids import Offset, TopicPartition

logger = logging.getLogger(__name__)

READ_RECORDS = 2000
WAIT_SECONDS = 1.0
CATCH_UP_SECONDS_MAX = 120.0


class NameList:
    """Sorted names of one kind."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._known: set[str] = set()

    def __len__(self) -> int:
        return len(self._names)

    def put(self, name: str) -> None:
        if name not in self._known:
            self._known.add(name)
            insort(self._names, name)

    def remove(self, name: str) -> None:
        if name in self._known:
            self._known.remove(name)
            del self._names[bisect_right(self._names, name) - 1]

    def page(self, pattern: str, after: str, limit: int) -> list[str]:
        """Up to `limit` names after `after` that match `pattern`.

        The search is limited to names with the prefix before the pattern's first wildcard.
        """
        matches = re.compile(fnmatch.translate(pattern)).match
        prefix = re.split(r"[*?\[]", pattern, maxsplit=1)[0]
        found: list[str] = []
        for at in range(bisect_right(self._names, max(after, _before(prefix))), len(self._names)):
            name = self._names[at]
            if len(found) == limit or not name.startswith(prefix):
                break
            if matches(name):
                found.append(name)
        return found


def _before(prefix: str) -> str:
    """A text that sorts before every name with `prefix` and after all smaller names: its last letter is
    decremented."""
    if not prefix:
        return ""
    return prefix[:-1] + chr(max(0, ord(prefix[-1]) - 1)) + "\U0010ffff"


class GlobalTables:
    """Directory of names, and presence. `start` returns when both have caught up with the log."""

    def __init__(self, log: Log, gateways: GatewayLiveness) -> None:
        self._log = log
        self._gateways = gateways
        self._lists = {"account": NameList(), "room": NameList()}
        self._online: dict[str, str] = {}
        """The gateway of each connected user, as last recorded; the gateway may have died since."""
        self._reader: LogReader | None = None
        self._task: asyncio.Task[None] | None = None

    def names(self, kind: str, pattern: str, after: str, limit: int) -> Sequence[str]:
        return self._lists[kind].page(pattern, after, limit)

    def is_online(self, user: str) -> bool:
        gateway = self._online.get(user)
        return gateway is not None and self._gateways.is_alive(gateway)

    @property
    def sizes(self) -> dict[str, int]:
        return {
            "accounts": len(self._lists["account"]),
            "rooms": len(self._lists["room"]),
            "online": len(self._online),
        }

    async def start(self) -> None:
        spans: dict[TopicPartition, Span] = {}
        for topic in (CHAT_DIRECTORY.name, PRESENCE.name):
            spans |= await self._log.admin.spans(topic)
        self._reader = await self._log.open_reader(Assignment(dict.fromkeys(spans, Offset(0))))
        ends = {place: span.end for place, span in spans.items() if span.start < span.end}
        deadline_s = time.monotonic() + CATCH_UP_SECONDS_MAX
        while ends:
            if time.monotonic() > deadline_s:
                raise LogUnavailable(f"no records from {', '.join(map(str, ends))}")
            await self._read(self._reader)
            at = await self._reader.positions()
            ends = {place: end for place, end in ends.items() if at.get(place, 0) < end}
        self._task = asyncio.create_task(self._follow(self._reader))

    async def _follow(self, reader: LogReader) -> None:
        while True:
            await self._read(reader)

    async def _read(self, reader: LogReader) -> None:
        for record in await reader.read(READ_RECORDS, WAIT_SECONDS):
            self._apply(record)

    def _apply(self, record: Received) -> None:
        key = (record.key or b"").decode(errors="replace")
        if record.topic == PRESENCE.name:
            self._apply_presence(key, record.value)
            return
        kind, _, name = key.partition("/")
        names = self._lists.get(kind)
        if names is None:
            return
        if record.value is None:
            names.remove(name)
        else:
            names.put(name)

    def _apply_presence(self, user: str, value: bytes | None) -> None:
        try:
            presence = None if value is None else decode_presence(value)
        except MalformedEvent as error:
            logger.warning("presence of %r: %s", user, error)
            return
        if presence is None:
            self._online.pop(user, None)
        else:
            self._online[user] = presence.gateway

    def check(self) -> None:
        """Raises the LogError that ended the reading task, if any."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._reader is not None:
            await self._reader.close()
