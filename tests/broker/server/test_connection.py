"""Order, overlap and back pressure of one connection, with a transport that only records."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from kafkaesque.broker.server.call import CloseConnection
from kafkaesque.broker.server.connection import Connection
from kafkaesque.broker.server.dispatch import Begun, Served
from kafkaesque.broker.server.handler import Answer
from kafkaesque.model.errors import InvariantBroken, ProtocolError
from kafkaesque.wire.frames import BufferPool

PLAIN, OVERLAPPING = 1, 0


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.pieces: list[int] = []
        """Of each write that was handed over in several."""
        self.is_reading = True
        self.end: str | None = None
        self.unsent_bytes = 0

    def set_write_buffer_limits(self, high: int) -> None: ...

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return "192.0.2.1", 1

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def writelines(self, buffers: list[bytes]) -> None:
        self.pieces.append(len(buffers))
        self.written.append(b"".join(buffers))

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True

    def abort(self) -> None:
        self.end = "aborted"

    def close(self) -> None:
        self.end = "closed"


class Dispatcher:
    """The body of a frame names its behaviour."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.waiting: dict[bytes, asyncio.Future[None]] = {}
        self.failures: dict[bytes, BaseException] = {}

    def overlaps(self, frame: memoryview) -> bool:
        return frame[1] == OVERLAPPING

    def serve(self, frame: memoryview, client_host: str, started: float) -> Served:
        name = bytes(frame[10:])
        self.begun.append(name)
        if name in self.failures:
            raise self.failures[name]
        if name.startswith(b"slow"):
            self.waiting[name] = asyncio.get_running_loop().create_future()
            return [], 0, Begun(cast(Any, name), 0, self.overlaps(frame), self._wait(name))
        return [name], len(name), None

    async def _wait(self, name: bytes) -> Answer:
        await self.waiting[name]
        return None

    def finish(
        self, begun: Begun, answer: Answer, frame_size_bytes: int, started: float
    ) -> tuple[list[bytes], int]:
        output = cast(bytes, begun.route)
        return [output], len(output)


class Host:
    request_size_bytes_max = 1000
    requests_in_flight_max = 4

    def __init__(self) -> None:
        self.dispatcher: Any = Dispatcher()
        self.pool = BufferPool()
        self.buffered_bytes = 0
        self.incomplete_told: list[tuple[int, bool]] = []
        self.unsent_bytes = 0
        self.refusal: str | None = None
        self.lost_count = 0
        self.protocol_errors = 0
        self.stopped: BaseException | None = None

    def accept(self, connection: Connection, address: str) -> str | None:
        return self.refusal

    def lost(self, connection: Connection, address: str) -> None:
        self.lost_count += 1

    def buffered(self, difference_bytes: int) -> None:
        self.buffered_bytes += difference_bytes

    def incomplete(self, connection: Connection, size_bytes: int, *, is_new: bool) -> None:
        self.incomplete_told.append((size_bytes, is_new))

    def unsent(self, difference_bytes: int) -> None:
        self.unsent_bytes += difference_bytes

    def protocol_error(self) -> None:
        self.protocol_errors += 1

    def stop_node(self, error: BaseException) -> None:
        self.stopped = error


def framed(name: bytes, key: int = PLAIN) -> bytes:
    frame = bytes([0, key]) + bytes(8) + name
    return len(frame).to_bytes(4) + frame


class Scene:
    def __init__(self) -> None:
        self.host = Host()
        self.transport = Transport()
        self.connection = Connection(self.host)
        self.connection.connection_made(cast(asyncio.Transport, self.transport))

    def receive(self, *names: bytes, key: int = PLAIN) -> None:
        for name in names:
            self.receive_bytes(framed(name, key))

    def receive_together(self, *names: bytes, key: int = PLAIN) -> None:
        data = b"".join(framed(name, key) for name in names)
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def receive_bytes(self, data: bytes) -> None:
        while data:
            buffer = self.connection.get_buffer(-1)
            part, data = data[: len(buffer)], data[len(buffer) :]
            buffer[: len(part)] = part
            self.connection.buffer_updated(len(part))

    async def answer(self, name: bytes) -> None:
        self.host.dispatcher.waiting[name].set_result(None)
        for _ in range(4):
            await asyncio.sleep(0)

    @property
    def begun(self) -> list[bytes]:
        return cast(list[bytes], self.host.dispatcher.begun)


def story(test: Callable[[Scene], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        async def play() -> None:
            await test(Scene())

        asyncio.run(play())

    run.__name__ = test.__name__
    return run


@story
async def test_request_that_is_done_at_once_is_answered_at_once(scene: Scene) -> None:
    scene.receive(b"a", b"b")
    assert scene.transport.written == [b"a", b"b"]
    assert scene.host.buffered_bytes == 0


@story
async def test_answers_to_pipelined_requests_leave_in_one_write(scene: Scene) -> None:
    scene.receive_together(*[b"%d" % n for n in range(5)])
    assert scene.transport.written == [b"01234"]
    assert scene.transport.pieces == []


@story
async def test_requests_after_one_that_waits_are_answered_after_it(scene: Scene) -> None:
    scene.receive_together(b"quick1", b"slow1", b"quick2", b"slow2", key=OVERLAPPING)
    assert scene.begun == [b"quick1", b"slow1", b"quick2", b"slow2"]
    assert scene.transport.written == [b"quick1"]
    scene.receive(b"quick3", key=OVERLAPPING)
    await scene.answer(b"slow2")
    await scene.answer(b"slow1")
    assert scene.transport.written == [b"quick1", b"slow1quick2slow2quick3"]
    assert scene.host.buffered_bytes == 0


@story
async def test_earlier_answers_are_sent_when_a_request_fails(scene: Scene) -> None:
    scene.host.dispatcher.failures[b"broken"] = RuntimeError("bug")
    scene.receive_together(b"quick1", b"broken", b"quick2")
    assert scene.transport.written == [b"quick1"]
    assert scene.transport.end == "aborted"
    assert scene.begun == [b"quick1", b"broken"]


@story
async def test_large_answers_leave_in_one_write_without_being_copied_together(scene: Scene) -> None:
    names = [b"%d" % n * 900 for n in range(5)]
    scene.receive(b"slow", *names[:3], key=OVERLAPPING)
    scene.receive(*names[3:], key=OVERLAPPING)
    await scene.answer(b"slow")
    assert scene.transport.written == [b"slow" + b"".join(names)]
    assert scene.transport.pieces == [6]


@story
async def test_request_after_a_waiting_one_is_not_begun(scene: Scene) -> None:
    scene.receive(b"slow", b"b")
    assert scene.begun == [b"slow"]
    await scene.answer(b"slow")
    assert scene.transport.written == [b"slowb"]
    assert scene.host.buffered_bytes == 0


@story
async def test_overlapping_requests_are_begun_together_and_answered_in_order(scene: Scene) -> None:
    scene.receive(b"slow1", b"slow2", b"quick", key=OVERLAPPING)
    assert scene.begun == [b"slow1", b"slow2", b"quick"]
    await scene.answer(b"slow2")
    assert scene.transport.written == []
    await scene.answer(b"slow1")
    assert scene.transport.written == [b"slow1slow2quick"]


@story
async def test_plain_request_waits_for_overlapping_ones_before_it(scene: Scene) -> None:
    scene.receive(b"slow1", key=OVERLAPPING)
    scene.receive(b"plain")
    scene.receive(b"quick", key=OVERLAPPING)
    assert scene.begun == [b"slow1"]
    await scene.answer(b"slow1")
    assert scene.transport.written == [b"slow1plainquick"]


@story
async def test_too_many_requests_under_way_stop_the_reading(scene: Scene) -> None:
    scene.receive(b"slow", b"a", b"b")
    assert scene.transport.is_reading
    scene.receive(b"c")
    assert not scene.transport.is_reading
    await scene.answer(b"slow")
    assert scene.transport.is_reading


@story
async def test_unread_answers_hold_back_further_requests(scene: Scene) -> None:
    scene.transport.unsent_bytes = 500
    scene.connection.pause_writing()
    assert scene.host.unsent_bytes == 500
    scene.receive(b"a")
    assert scene.begun == []
    scene.transport.unsent_bytes = 0
    scene.connection.resume_writing()
    assert scene.transport.written == [b"a"]
    assert scene.host.unsent_bytes == 0


@story
async def test_held_connection_does_not_read_even_when_it_has_nothing_to_do(scene: Scene) -> None:
    scene.connection.hold(True)
    scene.receive(b"a")
    assert not scene.transport.is_reading
    scene.connection.hold(False)
    assert scene.transport.is_reading


@story
async def test_lost_connection_cancels_its_requests_and_gives_back_its_memory(scene: Scene) -> None:
    scene.receive(b"slow", b"b")
    await asyncio.sleep(0)
    scene.connection.connection_lost(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert scene.host.dispatcher.waiting[b"slow"].cancelled()
    assert scene.host.buffered_bytes == 0
    assert scene.host.lost_count == 1
    assert scene.transport.written == []


@story
async def test_host_hears_of_a_request_only_while_that_is_incomplete(scene: Scene) -> None:
    scene.receive(b"whole", b"as well")
    assert scene.host.incomplete_told == []
    data = framed(b"cut")
    scene.receive_bytes(data[:7])
    scene.receive_bytes(data[7:9])
    assert [is_new for size, is_new in scene.host.incomplete_told if size] == [False, False]
    scene.receive_bytes(data[9:])
    assert scene.host.incomplete_told[2:] == [(0, True)]
    scene.receive(b"whole again")
    assert len(scene.host.incomplete_told) == 3


@story
async def test_incomplete_request_after_a_complete_one_is_a_new_one(scene: Scene) -> None:
    """Also where what is left over has the same size as before."""
    stream = framed(b"a") + framed(b"b") + framed(b"c")
    step = len(framed(b"a"))
    scene.receive_bytes(stream[:3])
    scene.receive_bytes(stream[3 : 3 + step])
    scene.receive_bytes(stream[3 + step : 3 + 2 * step])
    assert scene.begun == [b"a", b"b"]
    assert [is_new for _, is_new in scene.host.incomplete_told] == [False, True, True]
    assert all(size_bytes > 0 for size_bytes, _ in scene.host.incomplete_told)


@story
async def test_protocol_error_closes_without_an_answer(scene: Scene) -> None:
    scene.host.dispatcher.failures[b"bad"] = ProtocolError("no")
    scene.receive(b"a", b"bad")
    assert scene.transport.written == [b"a"]
    assert scene.transport.end == "aborted"
    assert scene.host.protocol_errors == 1


@story
async def test_frame_larger_than_the_first_limit_is_refused(scene: Scene) -> None:
    buffer = scene.connection.get_buffer(-1)
    buffer[:4] = (1001).to_bytes(4)
    scene.connection.buffer_updated(4)
    assert scene.transport.end == "aborted"


@story
async def test_handler_that_breaks_costs_its_connection_and_not_the_node(scene: Scene) -> None:
    scene.host.dispatcher.failures[b"bug"] = RuntimeError("bug")
    scene.receive(b"bug")
    assert scene.transport.end == "aborted"
    assert scene.host.stopped is None


@story
async def test_broken_invariant_stops_the_node(scene: Scene) -> None:
    scene.host.dispatcher.failures[b"bug"] = InvariantBroken("impossible")
    scene.receive(b"bug")
    assert isinstance(scene.host.stopped, InvariantBroken)


@story
async def test_handler_may_ask_for_the_connection_to_be_closed(scene: Scene) -> None:
    scene.host.dispatcher.failures[b"x"] = CloseConnection("acks=0 failed")
    scene.receive(b"x")
    assert scene.transport.end == "closed"


def test_refused_connection_is_aborted() -> None:
    async def play() -> None:
        host, transport = Host(), Transport()
        host.refusal = "full"
        connection = Connection(host)
        connection.connection_made(cast(asyncio.Transport, transport))
        assert transport.end == "aborted"

    asyncio.run(play())
