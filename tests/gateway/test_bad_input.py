"""Hostile or broken input: a close code, bounded memory, and no effect on other clients."""

from __future__ import annotations

import asyncio
import random
import socket
import struct

import pytest
from tests.gateway.stage import Stage, run, take
from tests.waiting import until

from kafkaesque.edge.protocol.codec import Encoding, decode_payload, encode_payload
from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import FrameParser, encode_frame
from kafkaesque.edge.protocol.messages import OPCODES, Auth, Bye, Hello, Message, Send
from kafkaesque.gateway.gateway import Gateway


def frame(message: Message) -> bytes:
    return encode_frame(OPCODES[type(message)], encode_payload(message, Encoding.JSON))


async def say(gateway: Gateway, *chunks: bytes) -> tuple[list[Message], bytes]:
    """Sends these frames and reads until the gateway closes."""
    reader, writer = await asyncio.open_connection(*gateway.address.split(":"))
    data = b""
    try:
        for chunk in chunks:
            writer.write(chunk)
            await writer.drain()
        async with asyncio.timeout(20):
            while piece := await reader.read(65536):
                data += piece
    except ConnectionError:
        pass
    finally:
        writer.close()
    try:
        parser = FrameParser(1 << 20)
        return [decode_payload(*found, Encoding.JSON) for found in parser.feed(data)], data
    except Violation:
        return [], data  # not one of our frames, for example an HTTP response


def closed_with(messages: list[Message]) -> int | None:
    return messages[-1].code if messages and isinstance(messages[-1], Bye) else None


HELLO = frame(Hello())
GARBAGE = random.Random(7).randbytes(5000)


@pytest.mark.parametrize(
    ("chunks", "code"),
    [
        ([HELLO, b"\x02" + GARBAGE], CloseCode.BAD_VERSION),
        ([HELLO, struct.pack(">BIH", 1, 0xFFFFFFFF, 5)], CloseCode.TOO_LARGE),
        ([HELLO, struct.pack(">BIH", 1, 9000, 2)], CloseCode.TOO_LARGE),
        ([HELLO, encode_frame(999, b"{}")], CloseCode.BAD_OPCODE),
        ([HELLO, encode_frame(70, b'{"position":"x","type":"y"}')], CloseCode.BAD_STATE),
        ([HELLO, encode_frame(2, b"\xff\xfe")], CloseCode.BAD_FRAME),
        ([HELLO, encode_frame(2, b'{"token": "\xff"}')], CloseCode.BAD_FRAME),
        ([HELLO, encode_frame(2, b'{"token": 5}')], CloseCode.BAD_FRAME),
        ([HELLO, frame(Send("a", "b"))], CloseCode.BAD_STATE),
        ([HELLO, HELLO], CloseCode.BAD_STATE),
        ([frame(Send("a", "b"))], CloseCode.BAD_STATE),
        ([HELLO, frame(Auth(token="x.y.z"))], CloseCode.AUTH_FAILED),
        ([HELLO, frame(Auth())], CloseCode.AUTH_FAILED),
    ],
)
def test_a_protocol_violation_closes_with_its_code_and_affects_no_other_client(
    chunks: list[bytes], code: CloseCode
) -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        alice = await on.connected("alice")
        messages, _ = await say(gateway, *chunks)
        assert closed_with(messages) == code
        assert (await alice.ask("who"))["user"] == "alice"
        assert alice.counts.disconnects == 0
        await until(lambda: len(gateway.connections) == 1)

    run(story)


def test_bytes_that_are_neither_frame_nor_http_close_the_connection() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        for start in (b"\x00", b"\x16\x03\x01", b"SSH-2.0-x\r\n", b"POST / HTTP/1.1\r\n\r\n"):
            _, data = await say(gateway, start + GARBAGE)
            assert data == b""
        _, data = await say(gateway, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert data.startswith(b"HTTP/1.1 4")
        await until(lambda: not gateway.connections)

    run(story)


def test_command_with_a_body_of_invalid_utf8_never_reaches_the_log() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        messages, _ = await say(
            gateway,
            HELLO + frame(Auth(token=on.token("alice"))),
            encode_frame(5, b'{"id":"a","op":"echo","body":{"t":"\xff\xfe"}}'),
        )
        assert closed_with(messages) == CloseCode.BAD_FRAME
        assert on.back_end.commands == []

    run(story)


def test_unauthenticated_clients_that_send_nothing_or_drip_are_closed_in_time() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(auth_timeout_ms="200")
        silent = [await asyncio.open_connection(*gateway.address.split(":")) for _ in range(20)]
        drip = await asyncio.open_connection(*gateway.address.split(":"))

        async def slowloris() -> None:
            for byte in b"GET / HTTP/1.1\r\n" * 1000:
                drip[1].write(bytes([byte]))
                await drip[1].drain()
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(slowloris())
        await until(lambda: gateway.counters.closes["auth-timeout"] == 21)
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)
        for _, writer in [*silent, drip]:
            writer.close()

    run(story)


def test_half_open_connection_is_closed_after_silence_and_its_user_leaves() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(heartbeat_ms="100")
        reader, writer = await asyncio.open_connection(*gateway.address.split(":"))
        writer.write(HELLO + frame(Auth(token=on.token("alice"))))
        await until(lambda: len(gateway.users) == 1)
        # The client is silent, as after a cut cable.
        await until(lambda: gateway.counters.closes["idle"] == 1)
        assert len(gateway.users) == 0
        assert b'"code":4001' in await reader.read()
        writer.close()

    run(story)


def test_client_that_never_reads_its_answers_is_not_read_from() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(write_buffer_bytes="4096", slow_timeout_ms="500")
        bob = await on.connected("bob")
        # Small kernel buffers: filling the default ones would take megabytes of answers.
        assert gateway.listener is not None
        gateway.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        mute = socket.socket()
        mute.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        host, _, port = gateway.address.rpartition(":")
        mute.connect((host, int(port)))
        mute.setblocking(False)
        _reader, writer = await asyncio.open_connection(sock=mute, limit=1024)
        writer.write(HELLO + frame(Auth(token=on.token("alice"))))
        pings = encode_frame(4, b'{"t":1}') * 2000

        async def flood() -> None:
            while True:
                writer.write(pings)
                await writer.drain()

        flooding = asyncio.create_task(flood())
        await until(lambda: gateway.counters.closes["too-slow"] == 1)
        flooding.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        writer.transport.abort()
        await bob.send("echo", {"n": 1})
        assert len(await take(bob, 1)) == 1

    run(story)


def test_connections_beyond_the_limit_are_closed_as_busy() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(connections_max="2")
        await on.connected("alice")
        await on.connected("bob")
        await say(gateway, HELLO)
        await until(lambda: gateway.counters.closes["busy"] == 1)
        assert len(gateway.connections) == 2

    run(story)


def test_random_bytes_after_login_affect_no_other_client() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        bob = await on.connected("bob")
        chance = random.Random(3)
        for _ in range(30):
            token = frame(Auth(token=on.token("alice")))
            junk = b"".join(
                encode_frame(chance.randrange(12), chance.randbytes(chance.randrange(60)))
                for _ in range(5)
            )
            messages, _ = await say(gateway, HELLO + token, junk)
            assert closed_with(messages) in set(CloseCode)
        assert (await bob.ask("who"))["user"] == "bob"
        await until(lambda: len(gateway.connections) == 1)

    run(story)


@pytest.mark.parametrize("kind", ["send", "ask"])
def test_a_body_that_grows_too_large_for_the_log_closes_the_connection(kind: str) -> None:
    """Control characters take one byte in msgpack and six in JSON."""

    async def story(on: Stage) -> None:
        gateway = await on.gateway(frame_max_bytes=str(512 * 1024))
        alice = await on.connected("alice", encoding=Encoding.MSGPACK)
        bob = await on.connected("bob")
        body = {"text": "\x01" * 200_000}
        sending = asyncio.ensure_future(getattr(alice, kind)("echo", body))
        await until(lambda: gateway.counters.closes["too-large"] == 1)
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        assert (await bob.ask("who"))["user"] == "bob"

    run(story)
