"""A relay in front of brokers that understands the protocol and delays some requests.

A client that gets no answer reconnects and retries; its first request is still in flight and arrives
seconds later over the old connection, in the middle of something else. This is how Jepsen tore
transactions of real brokers. Addresses in answers are replaced by the relay's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections import Counter
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Final, TypeAlias, TypeVar

from kafkaesque.model.address import parse_address
from kafkaesque.wire.api import ApiKey
from kafkaesque.wire.codec import decode_response, encode_response_frame
from kafkaesque.wire.messages.find_coordinator import FindCoordinatorResponse
from kafkaesque.wire.messages.metadata import MetadataResponse
from kafkaesque.wire.messages.produce import ProduceResponse
from kafkaesque.wire.table import Response

R = TypeVar("R", bound=Response)

HELD_KEYS: Final = frozenset({ApiKey.PRODUCE, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN})
HOLD_S_MIN: Final = 1.0
HOLD_S_MAX: Final = 6.0
_LINGER_S: Final = 3.0
"""How long the relay waits for a broker to read the requests of a client that has disconnected."""
_head = struct.Struct(">hhi")
_length = struct.Struct(">i")

Asked: TypeAlias = dict[int, tuple[int, int]]
"""Correlation id to API key and version."""


class DelayingRelay:
    """Runs in its own thread from `start` to `close`; address n is the relay of broker n."""

    def __init__(self, brokers: Sequence[str], share: float, random: Random) -> None:
        self._brokers = [parse_address(address) for address in brokers]
        self._share = share
        self._random = random
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._ours: dict[tuple[str, int], tuple[str, int]] = {}
        """The address of each relay, by the address of its broker."""
        self.is_holding = False
        self.held: Counter[str] = Counter()
        """Requests held back, by name."""
        self.arrived_late = 0
        """How many of these reached the broker after their client had disconnected."""

    def start(self) -> None:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()

    async def _listen(self) -> None:
        for broker in self._brokers:
            server = await asyncio.start_server(partial(self._serve, broker), "127.0.0.1", 0)
            self._servers.append(server)
            self._ours[broker] = ("127.0.0.1", server.sockets[0].getsockname()[1])

    @property
    def addresses(self) -> list[str]:
        return [f"{host}:{port}" for host, port in self._ours.values()]

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- one connection ---------------------------------------------------------------------------

    async def _serve(
        self,
        broker: tuple[str, int],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        try:
            theirs, ours = await asyncio.open_connection(*broker)
        except OSError:
            writer.close()
            return
        asked: Asked = {}
        back = asyncio.ensure_future(self._answers(theirs, writer, asked))
        try:
            await self._requests(reader, ours, asked)
            await asyncio.wait([back], timeout=_LINGER_S)
        except asyncio.CancelledError:
            # The relay is being closed; asyncio's streams would log this.
            pass
        finally:
            back.cancel()
            for end in (writer, ours):
                end.close()

    async def _requests(
        self, reader: asyncio.StreamReader, broker: asyncio.StreamWriter, asked: Asked
    ) -> None:
        """Forwards requests in order: requests after a delayed one wait with it."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await _read_frame(reader)
                api_key, version, correlation_id = _head.unpack_from(frame)
                asked[correlation_id] = api_key, version
                hold_s = self._hold_s(api_key)
                if hold_s:
                    await asyncio.sleep(hold_s)
                    self.arrived_late += reader.at_eof()
                broker.write(_length.pack(len(frame)) + frame)

    def _hold_s(self, api_key: int) -> float:
        if not self.is_holding or api_key not in HELD_KEYS or self._random.random() > self._share:
            return 0.0
        self.held[ApiKey(api_key).name] += 1
        return self._random.uniform(HOLD_S_MIN, HOLD_S_MAX)

    async def _answers(
        self, reader: asyncio.StreamReader, client: asyncio.StreamWriter, asked: Asked
    ) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                frame = await _read_frame(reader)
                (correlation_id,) = _length.unpack_from(frame)
                api_key, version = asked.pop(correlation_id)
                client.write(self._with_our_addresses(frame, api_key, version))
        client.close()

    # -- addresses --------------------------------------------------------------------------------

    def _with_our_addresses(self, frame: bytes, api_key: int, version: int) -> bytes:
        match api_key:
            case ApiKey.METADATA:
                answer = decode_response(MetadataResponse, memoryview(frame), version)
                for broker in answer.brokers:
                    broker.host, broker.port = self._our(broker.host, broker.port)
                return _framed(answer, version, frame)
            case ApiKey.FIND_COORDINATOR:
                found = decode_response(FindCoordinatorResponse, memoryview(frame), version)
                found.host, found.port = self._our(found.host, found.port)
                for one in found.coordinators:
                    one.host, one.port = self._our(one.host, one.port)
                return _framed(found, version, frame)
            case ApiKey.PRODUCE:
                # The hint at a new leader (KIP-951) contains the leader's own address.
                produced = decode_response(ProduceResponse, memoryview(frame), version)
                if produced.node_endpoints:
                    produced.node_endpoints = []
                    return _framed(produced, version, frame)
        return _length.pack(len(frame)) + frame

    def _our(self, host: str, port: int) -> tuple[str, int]:
        return self._ours.get((host, port), (host, port))


def _framed(answer: Response, version: int, frame: bytes) -> bytes:
    (correlation_id,) = _length.unpack_from(frame)
    buffers, _ = encode_response_frame(answer, version, correlation_id)
    return b"".join(buffers)


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (size_bytes,) = _length.unpack(await reader.readexactly(_length.size))
    return await reader.readexactly(size_bytes)
