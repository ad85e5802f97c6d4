"""Which users are connected: a fold of `gw.presence`, checked against the live gateways."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import Assignment, Log, LogReader, Received
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.gateway import PRESENCE, Presence

READ_SECONDS = 0.5
_decoder = msgspec.json.Decoder(Presence)


class ConnectedUsers:
    """Follows the presence topic in the background. Create it with `opened`."""

    def __init__(self, gateways: GatewayLiveness) -> None:
        self._gateways = gateways
        self._at: dict[str, str] = {}

    @classmethod
    @asynccontextmanager
    async def opened(cls, log: Log, zookeeper: str) -> AsyncIterator[ConnectedUsers]:
        """`zookeeper` may be empty: then every gateway counts as alive."""
        async with AsyncExitStack() as stack:
            gateways = GatewayLiveness(zookeeper, "jobs")
            await gateways.start()
            stack.push_async_callback(gateways.stop)
            await log.admin.ensure_topics([PRESENCE])
            connected = cls(gateways)
            spans = await log.admin.spans(PRESENCE.name)
            # Complete before the first query; otherwise everybody would seem to be absent.
            async for batch in read_stretch(log, spans):
                connected._apply(batch)
            reader = await log.open_reader(
                Assignment({place: span.end for place, span in spans.items()})
            )
            stack.push_async_callback(reader.close)
            following = asyncio.create_task(connected._follow(reader))
            try:
                yield connected
            finally:
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)

    async def _follow(self, reader: LogReader) -> None:
        while True:
            self._apply(await reader.read(wait_s=READ_SECONDS))
            await asyncio.sleep(0)

    def _apply(self, records: Iterable[Received]) -> None:
        for record in records:
            self._set((record.key or b"").decode("utf-8", "replace"), record.value)

    def _set(self, user: str, value: bytes | None) -> None:
        if value is None:
            self._at.pop(user, None)
            return
        try:
            self._at[user] = _decoder.decode(value).gateway
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._at.pop(user, None)

    def is_connected(self, user: str) -> bool:
        gateway = self._at.get(user)
        return gateway is not None and self._gateways.is_alive(gateway)
