"""A successor takes over: two gateways of one name in one process, and the sockets between them."""

from __future__ import annotations

import asyncio
import socket

import pytest
from tests.gateway.stage import Stage, run, take
from tests.waiting import until

from kafkaesque.edge.client import EdgeClient
from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.gateway.handover import HandoverFailed, HandoverServer, take_over
from kafkaesque.service.clock import SystemClock


async def successor(on: Stage) -> Gateway:
    gateway = Gateway("gw-1", on.log, gateway_config({}), on.data, SystemClock())
    on.gateways.append(gateway)
    await gateway.prepare()
    return gateway


def test_clients_are_handed_over_without_noticing() -> None:
    async def story(on: Stage) -> None:
        old = await on.gateway()
        address = old.address
        clients = [
            await on.connected("alice", address),
            await on.connected("bob", f"ws://{address}"),
            await on.connected("carol", f"ws://{address}", encoding=Encoding.MSGPACK),
        ]
        await clients[1].subscribe("lobby")
        server = HandoverServer(old, on.data)
        server.start()
        new = await successor(on)
        # Data that clients send during the handover waits in the kernel.
        saying = [asyncio.create_task(client.send("echo", {"n": 1})) for client in clients]
        taken, count = await take_over(new, on.data)
        assert (taken, count) == (address, 3)
        await asyncio.wait_for(server.handed_over.wait(), 10)
        await old.stop(handed_over=True)
        await server.stop()
        on.gateways.remove(old)
        await asyncio.gather(*saying)
        for client in clients:
            assert (await take(client, 1))[0].body == {"n": 1}
        await clients[0].send("message.send", {"to": "bob", "text": "still there"})
        assert (await take(clients[1], 1))[0].body["text"] == "still there"
        await clients[2].send("room.post", {"room": "lobby", "text": "hi"})
        assert (await take(clients[1], 1))[0].room == "lobby"
        assert [client.counts.disconnects for client in clients] == [0, 0, 0]
        late = await on.connected("dave", address)
        assert (await late.ask("who"))["user"] == "dave"
        assert new.counters.handed_over == 3
        assert old.counters.drained == 0

    run(story)


def test_messages_that_arrive_during_a_handover_wait() -> None:
    async def story(on: Stage) -> None:
        old = await on.gateway()
        clients = [await on.connected(f"user-{number}", old.address) for number in range(20)]
        server = HandoverServer(old, on.data)
        server.start()
        new = await successor(on)
        saying = [asyncio.create_task(talk(client)) for client in clients]
        assert (await take_over(new, on.data))[1] == len(clients)
        await asyncio.wait_for(server.handed_over.wait(), 10)
        await old.stop(handed_over=True)
        await server.stop()
        on.gateways.remove(old)
        await asyncio.gather(*saying)
        assert {client.counts.disconnects for client in clients} == {0}

    async def talk(client: EdgeClient) -> None:
        for number in range(30):
            await client.send("echo", {"n": number})

    run(story)


def test_a_message_split_by_the_handover_is_reassembled() -> None:
    async def story(on: Stage) -> None:
        old = await on.gateway()
        reader, writer = await asyncio.open_connection(*old.address.split(":"))
        from kafkaesque.edge.protocol.codec import encode_payload
        from kafkaesque.edge.protocol.framing import encode_frame
        from kafkaesque.edge.protocol.messages import OPCODES, Auth, Hello, Ping

        def frame(message: object) -> bytes:
            return encode_frame(
                OPCODES[type(message)],  # type: ignore[index]
                encode_payload(message, Encoding.JSON),  # type: ignore[arg-type]
            )

        ping = frame(Ping(77))
        writer.write(frame(Hello()) + frame(Auth(token=on.token("alice"))) + ping[:9])
        await until(lambda: any(c.session.user for c in old.connections))
        await reader.readexactly(7)
        server = HandoverServer(old, on.data)
        server.start()
        new = await successor(on)
        assert (await take_over(new, on.data))[1] == 1
        await server.handed_over.wait()
        writer.write(ping[9:])
        data = b""
        while b'"t":77' not in data:
            data += await asyncio.wait_for(reader.read(1000), 10)
        await old.stop(handed_over=True)
        await server.stop()
        on.gateways.remove(old)
        writer.close()
        await writer.wait_closed()

    run(story)


def test_successor_that_goes_away_leaves_the_old_process_serving() -> None:
    async def story(on: Stage) -> None:
        old = await on.gateway()
        alice = await on.connected("alice")
        server = HandoverServer(old, on.data)
        server.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(on.data / "handover.sock"))
            peer.send(b'{"format":1}')
            await until(lambda: old.draining)
        await until(lambda: not old.draining)
        assert (await alice.ask("who"))["user"] == "alice"
        late = await on.connected("bob")
        assert (await late.ask("who"))["user"] == "bob"
        assert alice.counts.disconnects == 0
        await server.stop()

    run(story)


def test_successor_of_another_format_is_refused() -> None:
    async def story(on: Stage) -> None:
        old = await on.gateway()
        alice = await on.connected("alice")
        server = HandoverServer(old, on.data)
        server.start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            peer.connect(str(on.data / "handover.sock"))
            peer.send(b'{"format":999}')
            assert await asyncio.to_thread(peer.recv, 100) == b""
        assert (await alice.ask("who"))["user"] == "alice"
        await server.stop()

    run(story)


def test_taking_over_without_an_old_process_fails() -> None:
    async def story(on: Stage) -> None:
        new = await successor(on)
        with pytest.raises(HandoverFailed, match="no gateway to take over from"):
            await take_over(new, on.data)

    run(story)
