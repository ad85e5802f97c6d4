"""The floor under every figure: what a bare asyncio server of the same frames can do here.

It reads Kafka's frames, appends each Produce frame to one file and answers a constant; a Fetch is
answered with a range of one prepared file of record batches. No checks, no offsets, no CRC, no
topics: any real broker in Python does at least this much, so `ours / floor` says what our rules
cost. Stands alone on purpose: nothing of the broker may be imported here.

    python benchmarks/floor.py --data DIR [--loop uvloop|asyncio] [--sync]
                               [--fetch-file FILE --batch-bytes B --batch-records R]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import struct
from collections.abc import Callable
from pathlib import Path

TOPIC = b"bench"
PARTITION_COUNT = 64

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
# (key, min, max): Produce starts at 0 because librdkafka looks for 3 inside the range; clients
# then send the maximum, which is the one version that is answered.
API_RANGES = (
    (PRODUCE, 0, 9),
    (FETCH, 4, 12),
    (LIST_OFFSETS, 1, 1),
    (METADATA, 1, 1),
    (API_VERSIONS, 0, 3),
)

FRAME_BYTES_MAX = 4 << 20
_HEAD = struct.Struct(">ihhi")  # frame size, api key, api version, correlation id
_REPLY = struct.Struct(">ii")  # frame size, correlation id


def string(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def compact_string(value: bytes) -> bytes:
    return bytes([len(value) + 1]) + value


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def produce_answer() -> bytes:
    """ProduceResponse v9 after its correlation id: partition 0, no error, offset 0."""
    partition = struct.pack(">ihqqq", 0, 0, 0, -1, 0) + b"\x01\x00\x00"
    return (
        b"\x00\x02" + compact_string(TOPIC) + b"\x02" + partition + b"\x00" + b"\0\0\0\0" + b"\x00"
    )


def api_versions_answer(version: int) -> bytes:
    if version < 3:
        body = b"".join(struct.pack(">hhh", *api) for api in API_RANGES)
        tail = b"\0\0\0\0" if version else b""
        return struct.pack(">hi", 0, len(API_RANGES)) + body + tail
    body = b"".join(struct.pack(">hhh", *api) + b"\x00" for api in API_RANGES)
    return b"\0\0" + bytes([len(API_RANGES) + 1]) + body + b"\0\0\0\0" + b"\x00"


def metadata_answer(host: bytes, port: int) -> bytes:
    """MetadataResponse v1: this one broker leads every partition of the one topic."""
    partitions = b"".join(
        struct.pack(">hiiiiii", 0, index, 0, 1, 0, 1, 0) for index in range(PARTITION_COUNT)
    )
    broker = (
        struct.pack(">ii", 1, 0) + string(host) + struct.pack(">i", port) + struct.pack(">h", -1)
    )
    topic = struct.pack(">h", 0) + string(TOPIC) + b"\x00" + struct.pack(">i", PARTITION_COUNT)
    return broker + struct.pack(">i", 0) + struct.pack(">i", 1) + topic + partitions


def list_offsets_answer() -> bytes:
    """ListOffsetsResponse v1: every partition that may be asked for starts at offset 0."""
    one = b"".join(struct.pack(">ihqq", p, 0, -1, 0) for p in range(PARTITION_COUNT))
    return struct.pack(">i", 1) + string(TOPIC) + struct.pack(">i", PARTITION_COUNT) + one


class FetchFile:
    """One file of equal batches, so that an offset becomes a position by arithmetic."""

    def __init__(self, path: str, batch_bytes: int, batch_records: int) -> None:
        self._fd = os.open(path, os.O_RDONLY)
        self._size_bytes = os.fstat(self._fd).st_size
        self._batch_bytes = batch_bytes
        self._batch_records = batch_records

    def read(self, offset: int, size_bytes_max: int) -> bytes:
        position = offset // self._batch_records * self._batch_bytes
        if position >= self._size_bytes:
            return b""
        whole = max(size_bytes_max // self._batch_bytes, 1) * self._batch_bytes
        return os.pread(self._fd, whole, position)

    @property
    def end_offset(self) -> int:
        return self._size_bytes // self._batch_bytes * self._batch_records


class Floor:
    """What all connections share: the file, the constant answers, and the sync rounds."""

    def __init__(self, data: Path, fetch_file: FetchFile | None, sync: bool) -> None:
        self.fd = os.open(data / "frames", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.produce = produce_answer()
        self.produce_size = len(self.produce) + 4
        self.fetch_file = fetch_file
        self.sync = sync
        self.metadata = b""
        self._waiting: list[Callable[[], None]] = []
        self._syncing = False

    def answer_after_sync(self, answer: Callable[[], None]) -> None:
        """Group commit: whatever was appended while one sync ran shares the next one."""
        self._waiting.append(answer)
        if not self._syncing:
            self._syncing = True
            asyncio.get_running_loop().call_soon(self._next_round)

    def _next_round(self) -> None:
        batch, self._waiting = self._waiting, []
        if not batch:
            self._syncing = False
            return
        done = asyncio.get_running_loop().run_in_executor(None, os.fdatasync, self.fd)
        done.add_done_callback(lambda _: self._finish(batch))

    def _finish(self, batch: list[Callable[[], None]]) -> None:
        for answer in batch:
            answer()
        self._next_round()


class Connection(asyncio.BufferedProtocol):
    """Receives straight into one buffer per connection and cuts frames where they lie."""

    def __init__(self, floor: Floor) -> None:
        self.floor = floor
        self.buffer = bytearray(16 << 10)
        self.view = memoryview(self.buffer)
        self.start = 0
        self.end = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.WriteTransport = transport  # type: ignore[assignment]

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.view[self.end :]

    def buffer_updated(self, nbytes: int) -> None:
        self.end += nbytes
        view, start, end = self.view, self.start, self.end
        while end - start >= 4:
            stop = start + 4 + int.from_bytes(view[start : start + 4])
            if stop > end:
                self._make_room(start, end, stop - start)
                return
            self._serve(view[start:stop])
            start = stop
        self._make_room(start, end, 16 << 10)

    def _make_room(self, start: int, end: int, needed: int) -> None:
        """Keep the partial frame where it is if the rest fits; else move it to the front."""
        if start == end:
            start = end = 0
        if start + needed > len(self.buffer):
            if needed > FRAME_BYTES_MAX:
                self.transport.abort()
                return
            target = self.buffer
            if needed * 2 > len(self.buffer):
                target = bytearray(needed * 2 + (16 << 10))
            target[: end - start] = bytes(self.view[start:end])
            self.buffer, self.view = target, memoryview(target)
            start, end = 0, end - start
        self.start, self.end = start, end

    def _serve(self, frame: memoryview) -> None:
        _, api, version, correlation = _HEAD.unpack_from(frame)
        floor = self.floor
        if api == PRODUCE:
            os.write(floor.fd, frame)
            answer = _REPLY.pack(floor.produce_size, correlation) + floor.produce
            if floor.sync:
                floor.answer_after_sync(lambda: self.transport.write(answer))
            else:
                self.transport.write(answer)
        elif api == FETCH:
            self._fetch(frame, correlation)
        else:
            body = {
                API_VERSIONS: lambda: api_versions_answer(min(version, 3)),
                METADATA: lambda: floor.metadata,
                LIST_OFFSETS: list_offsets_answer,
            }[api]()
            self.transport.write(_REPLY.pack(len(body) + 4, correlation) + body)

    def _fetch(self, frame: memoryview, correlation: int) -> None:
        """FetchRequest v12 with the one topic: answer each partition asked with a file range."""
        (client_id_length,) = struct.unpack_from(">h", frame, 12)
        at = 14 + max(client_id_length, 0) + 1 + 25
        if self.floor.fetch_file is None or frame[at] != 2:
            self.transport.abort()
            return
        at += 1 + frame[at + 1]
        partition_count = frame[at] - 1
        at += 1
        parts = [
            b"\x00" + b"\0" * 10 + b"\x02" + compact_string(TOPIC) + uvarint(partition_count + 1)
        ]
        found = False
        for _ in range(partition_count):
            index, _, offset, _, _, size_bytes_max = struct.unpack_from(">iiqiqi", frame, at)
            at += 33
            records = self.floor.fetch_file.read(offset, size_bytes_max)
            end = self.floor.fetch_file.end_offset
            head = struct.pack(">ihqqq", index, 0, end, end, 0) + b"\x00" + b"\xff\xff\xff\xff"
            parts += [head + uvarint(len(records) + 1), records, b"\x00"]
            found = found or bool(records)
        parts.append(b"\x00\x00")
        size = 4 + sum(map(len, parts))
        answer = [_REPLY.pack(size, correlation), *parts]
        if found:
            self.transport.writelines(answer)
        else:
            # The end of the file: wait as a broker would, or a client turns without a pause.
            asyncio.get_running_loop().call_later(0.5, self.transport.writelines, answer)


async def serve(args: argparse.Namespace) -> None:
    fetch_file = None
    if args.fetch_file:
        fetch_file = FetchFile(args.fetch_file, args.batch_bytes, args.batch_records)
    floor = Floor(Path(args.data), fetch_file, args.sync)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(floor), args.host, args.port, backlog=4096)
    port = server.sockets[0].getsockname()[1]
    floor.metadata = metadata_answer(args.host.encode(), port)
    print(f"ready kafka={args.host}:{port} pid={os.getpid()} loop={args.loop}", flush=True)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--loop", choices=("uvloop", "asyncio"), default="uvloop")
    parser.add_argument("--sync", action="store_true", help="fdatasync before answering, in rounds")
    parser.add_argument("--fetch-file")
    parser.add_argument("--batch-bytes", type=int, default=1)
    parser.add_argument("--batch-records", type=int, default=1)
    args = parser.parse_args()
    if args.loop == "uvloop":
        import uvloop

        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
    else:
        runner = asyncio.Runner()
    with runner:
        runner.run(serve(args))


if __name__ == "__main__":
    main()
