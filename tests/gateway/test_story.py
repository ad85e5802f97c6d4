"""The effect of each message: clients, gateway and back end together, on the log of `logs`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.gateway.logs import memory_only, records_of, trim
from tests.gateway.stage import EchoBackEnd, Stage, run, take
from tests.waiting import until

from kafkaesque.client.memory import MemoryLog
from kafkaesque.client.ports import DeliveryFailed, Record
from kafkaesque.edge.client import ClientClosed, EdgeClient, RequestFailed, SnapshotNeeded
from kafkaesque.edge.client_state import Credentials
from kafkaesque.edge.client_transport import open_transport
from kafkaesque.edge.protocol.codec import Encoding
from kafkaesque.edge.protocol.codes import CloseCode
from kafkaesque.edge.protocol.messages import Auth, Hello, Resume
from kafkaesque.events.gateway import (
    INBOX,
    PRESENCE,
    Event,
    decode_presence,
    encode_value,
    partition_of,
    raw,
)
from kafkaesque.gateway.rules.routes import parse_routes
from kafkaesque.model.ids import Offset, TopicPartition


async def events_for(on: Stage, user: str, count: int, size: int = 1) -> None:
    writer = await on.log.open_writer()
    try:
        await writer.send(
            Record(
                INBOX.name, user.encode(), encode_value(Event("n", raw({"n": n, "x": "y" * size})))
            )
            for n in range(count)
        )
    finally:
        await writer.close()


async def presence_until(on: Stage, fits: Callable[[bytes | None], bool]) -> bytes | None:
    """The newest presence record of alice, once it is as expected; empty if there is none."""

    async def look() -> list[bytes | None]:
        found = [
            one.value for one in await records_of(on.log, PRESENCE.name) if one.key == b"alice"
        ]
        newest = found[-1] if found else b""
        return [newest] if fits(newest) else []

    (newest,) = await until(look, "alice's presence")
    return newest


def numbers(events: list[object]) -> list[int]:
    return [event.body["n"] for event in events]  # type: ignore[attr-defined]


def test_a_command_is_acknowledged_and_its_result_is_an_event() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        command = await alice.send("echo", {"n": 1})
        [event] = await take(alice, 1)
        assert (event.type, event.re, event.body) == ("result", command, {"n": 1})
        assert alice.position == event.position
        user, headers, op, body = on.back_end.commands[0]
        assert (user, headers.id, op, body) == ("alice", command, "echo", {"n": 1})
        assert (headers.gateway, headers.app_version, headers.anonymous) == ("gw-1", "v1", False)

    run(story)


@pytest.mark.parametrize("scheme", ["", "ws://"])
@pytest.mark.parametrize("encoding", list(Encoding))
def test_a_message_reaches_another_user_over_every_transport_and_encoding(
    scheme: str, encoding: Encoding
) -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        bob = await on.connected("bob", scheme + gateway.address, encoding=encoding)
        alice = await on.connected("alice")
        await alice.send("message.send", {"to": "bob", "text": "hellö"})
        [event] = await take(bob, 1)
        assert event.body == {"to": "bob", "text": "hellö", "from": "alice"}
        await bob.send("echo", {"deep": [1, {"a": None}]})
        [echo] = await take(bob, 1)
        assert echo.body == {"deep": [1, {"a": None}]}

    run(story)


def test_a_request_is_answered_or_refused_by_the_back_end() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        assert await alice.ask("who", {"x": 1}) == {"user": "alice", "said": {"x": 1}}
        with pytest.raises(RequestFailed) as refused:
            await alice.ask("fail")
        assert refused.value.code == "no-such-thing"

    run(story)


def test_an_unanswered_request_times_out_and_the_connection_stays() -> None:
    async def story(on: Stage) -> None:
        await on.gateway(ask_timeout_ms="100")
        alice = await on.connected("alice")
        on.back_end.silent = True
        with pytest.raises(TimeoutError):
            await alice.ask("who", timeout_s=0.5)
        on.back_end.silent = False
        assert (await alice.ask("who"))["user"] == "alice"
        assert alice.counts.disconnects == 0

    run(story)


def test_a_client_resumes_on_another_gateway_without_a_gap() -> None:
    async def story(on: Stage) -> None:
        first = await on.gateway("gw-1")
        alice = await on.connected("alice", first.address)
        await events_for(on, "alice", 3)
        got = await take(alice, 3)
        position = alice.position
        await alice.close()
        await events_for(on, "alice", 5)
        await events_for(on, "bob", 5)
        second = await on.gateway("gw-2")
        alice = await on.connected("alice", second.address, position=position)
        assert alice.counts.replayed == 5
        again = await take(alice, 5)
        assert numbers(list(again)) == [0, 1, 2, 3, 4]
        assert {event.position for event in got}.isdisjoint(event.position for event in again)

    run(story)


def test_a_first_login_can_start_from_the_earliest_event() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        await events_for(on, "alice", 4)
        alice = await on.connected("alice", position="earliest")
        assert numbers(list(await take(alice, 4))) == [0, 1, 2, 3]

    run(story)


def test_a_position_that_retention_deleted_is_an_invalid_session() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        await events_for(on, "alice", 3)
        first = (await take(alice, 3))[0].position
        await alice.close()
        place = TopicPartition(INBOX.name, partition_of("alice", INBOX.partitions))
        await trim(on.log, place, Offset(2))
        # Another gateway: the first one still has the old start of the log and notices only by reading.
        for name in ("gw-2", None):
            gateway = on.gateways[0] if name is None else await on.gateway(name)
            alice = await on.connected("alice", gateway.address, position=first)
            event = await anext(aiter(alice.events()))
            assert isinstance(event, SnapshotNeeded)
            await events_for(on, "alice", 1)
            assert len(await take(alice, 1)) == 1
            await alice.close()

    run(story)


@pytest.mark.parametrize(
    "position",
    [
        "mI1V1fD9SzuR7hSv9Fdqqw.7.0",  # another topic
        "{topic}.3.0",  # another partition
        "{topic}.7.99",  # beyond the end
    ],
)
def test_a_foreign_position_needs_a_snapshot(position: str) -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        probe = await on.connected("alice")
        topic = (probe.position or "").split(".")[0]
        alice = await on.connected("alice", position=position.format(topic=topic))
        assert isinstance(await anext(aiter(alice.events())), SnapshotNeeded)
        await events_for(on, "alice", 2)
        assert numbers(list(await take(alice, 2))) == [0, 1]

    run(story)


def test_events_of_a_slow_client_stay_in_the_log_and_none_is_lost() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(write_buffer_bytes="4096", send_rate="1000")
        alice = await on.connected("alice")
        count = 3000
        # More than the client's queue (credit), the socket and the buffers can hold.
        await events_for(on, "alice", count, 2000)
        await until(lambda: gateway.inbox.fan_out.spills > 0)
        assert gateway.inbox.fan_out.behind_count() == 1
        assert numbers(list(await take(alice, count))) == list(range(count))
        assert alice.counts.disconnects == 0

    run(story)


def test_a_client_that_never_reads_is_closed() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(slow_timeout_ms="300")
        link = await open_transport(gateway.address, Encoding.JSON)
        await link.send([Hello(), Auth(token=on.token("alice")), Resume()])
        await until(lambda: gateway.counters.resumes == 1)
        await events_for(on, "alice", 200, 100_000)
        await until(lambda: gateway.counters.closes["too-slow"] == 1)
        assert gateway.inbox.fan_out.spills == 1
        await link.close()

    run(story)


def test_client_without_credit_waits_and_is_not_closed() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(slow_timeout_ms="100", heartbeat_ms="1000")
        alice = await on.connected("alice")
        await events_for(on, "alice", 1100)
        await until(lambda: gateway.inbox.fan_out.spills == 1)
        now_s = gateway.clock.monotonic()
        [connection] = gateway.connections
        await until(lambda: connection.session.received_s > now_s)
        assert len(await take(alice, 1100)) == 1100
        assert alice.counts.disconnects == 0

    run(story)


def test_room_events_reach_its_subscribers_only() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice, bob = await on.connected("alice"), await on.connected("bob")
        await alice.subscribe("lobby")
        with pytest.raises(RequestFailed) as refused:
            await alice.subscribe("closed")
        assert refused.value.code == "forbidden"
        await bob.send("room.post", {"room": "lobby", "text": "hi"})
        [event] = await take(alice, 1)
        assert (event.room, event.body["text"]) == ("lobby", "hi")
        await alice.unsubscribe("lobby")
        await bob.send("room.post", {"room": "lobby", "text": "gone"})
        await bob.send("message.send", {"to": "alice", "text": "after"})
        [event] = await take(alice, 1)
        assert event.body["text"] == "after"

    run(story)


def test_room_subscriptions_survive_a_reconnect_without_a_gap() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        alice, bob = await on.connected("alice"), await on.connected("bob")
        await alice.subscribe("lobby")
        await bob.send("room.post", {"room": "lobby", "text": "1"})
        await take(alice, 1)
        for connection in list(gateway.connections):
            if connection.session.user is not None and connection.session.user.name == "alice":
                assert connection.transport is not None
                connection.transport.abort()
        await bob.send("room.post", {"room": "lobby", "text": "2"})
        [event] = await take(alice, 1)
        assert event.body["text"] == "2"
        assert alice.counts.disconnects == 1

    run(story)


def test_an_account_is_registered_once_and_logs_in_with_its_password() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        secret = "no hash has spaces"
        new = Credentials(name="carol", password=secret, register=True)
        carol = await on.connected("carol", credentials=new)
        assert carol.user == "carol"
        assert carol.token is not None
        assert on.back_end.accounts["carol"].startswith("$argon2id$")
        assert all(secret not in str(command[3]) for command in on.back_end.commands)
        # The first answer may have been lost: the same registration again logs in.
        assert (await on.connected("carol", credentials=new)).user == "carol"
        another = Credentials(name="carol", password="another", register=True)
        with pytest.raises(RequestFailed) as taken:
            await on.connected("carol", credentials=another)
        assert taken.value.code == "name-taken"
        again = await on.connected("carol", credentials=Credentials(name="carol", password=secret))
        assert again.user == "carol"
        for name, password in (("carol", "wrong"), ("nobody", secret)):
            with pytest.raises(RequestFailed) as refused:
                await on.connected("", credentials=Credentials(name=name, password=password))
            assert refused.value.code == "auth-failed"

    run(story)


def test_clients_may_not_use_operations_of_the_gateway() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        for op in ("account.create", "account.credentials"):
            with pytest.raises(RequestFailed) as refused:
                await alice.ask(op, {"name": "bob"})
            assert refused.value.code == "forbidden-op"
            with pytest.raises(RequestFailed):
                await alice.send(op, {"name": "bob"})
        assert on.back_end.commands == []

    run(story)


def test_a_logged_out_token_is_refused_on_every_gateway() -> None:
    async def story(on: Stage) -> None:
        first, second = await on.gateway("gw-1"), await on.gateway("gw-2")
        token = on.token("alice")
        stolen = Credentials(token=token)
        alice = await on.connected("alice", first.address, credentials=stolen)
        other = await on.connected("alice", second.address, credentials=stolen)
        await alice.logout()
        await until(lambda: second.counters.closes["revoked"] == 1)
        for gateway in (first, second):
            with pytest.raises(ClientClosed) as refused:
                await on.connected("alice", gateway.address, credentials=stolen)
            assert refused.value.code == CloseCode.AUTH_FAILED
        await other.close()

    run(story)


def test_a_token_is_renewed_while_connected_without_ending_the_session() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(auth_token_ttl_ms="1500", heartbeat_ms="500")
        alice = await on.connected("alice")
        old = alice.token
        await until(lambda: alice.token != old)
        await asyncio.sleep(0)
        [connection] = gateway.connections
        assert connection.session.identity is not None
        assert (await alice.ask("who"))["user"] == "alice"
        assert alice.counts.disconnects == 0

    run(story)


def test_rate_of_a_user_is_limited_over_all_connections_and_the_client_waits() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway(send_rate="50", send_burst="5")
        one, two = await on.connected("alice"), await on.connected("alice")
        bob = await on.connected("bob")
        await asyncio.gather(*(one.send("echo", {"n": n}) for n in range(5)),
                             *(two.send("echo", {"n": n}) for n in range(5)))  # fmt: skip
        assert gateway.counters.rate_limited > 0
        commands = on.back_end.commands
        await until(lambda: len({(user, headers.id) for user, headers, _, _ in commands}) == 10)
        limited = gateway.counters.rate_limited
        await bob.send("echo")
        assert gateway.counters.rate_limited == limited

    run(story)


def test_the_connections_of_a_user_are_limited() -> None:
    async def story(on: Stage) -> None:
        await on.gateway(connections_per_user_max="1")
        await on.connected("alice")
        with pytest.raises(ClientClosed) as refused:
            await on.connected("alice")
        assert refused.value.code == CloseCode.TOO_MANY
        await on.connected("bob")

    run(story)


def test_presence_follows_the_last_connection() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()

        one, two = await on.connected("alice"), await on.connected("alice")
        newest = await presence_until(on, lambda value: b'"connections":2' in (value or b""))
        assert decode_presence(newest or b"").gateway == "gw-1"
        await one.close()
        await presence_until(on, lambda value: b'"connections":1' in (value or b""))
        await two.close()
        await presence_until(on, lambda value: value is None)

    run(story)


def test_a_user_on_two_gateways_is_present_until_both_connections_close() -> None:
    async def story(on: Stage) -> None:
        first, second = await on.gateway("gw-1"), await on.gateway("gw-2")
        one = await on.connected("alice", first.address)
        two = await on.connected("alice", second.address)
        await presence_until(on, lambda value: b"gw-2" in (value or b""))
        await two.close()
        await presence_until(on, lambda value: b"gw-1" in (value or b""))
        await one.close()
        await presence_until(on, lambda value: value is None)

    run(story)


def test_drain_sends_clients_to_other_gateways_and_nothing_is_missed() -> None:
    async def story(on: Stage) -> None:
        pace = {"drain_interval_ms": "10", "drain_grace_ms": "60000"}
        first, second = await on.gateway("gw-1", **pace), await on.gateway("gw-2", **pace)
        alice = await on.connected("alice", first.address, second.address)
        home = first if len(first.connections) else second
        assert home.not_ready() is None
        draining = asyncio.create_task(home.drain())
        await until(lambda: home.not_ready() == "draining")
        await events_for(on, "alice", 10)
        await draining
        assert numbers(list(await take(alice, 10))) == list(range(10))
        assert home.counters.closes["going-away"] == 0
        assert home.counters.drained == 1
        assert [gateway.counters.handed_over for gateway in (first, second)] == [0, 0]

    run(story)


@memory_only("a log that fails on cue")
def test_a_command_repeated_after_a_log_error_takes_effect_once() -> None:
    async def story(on: Stage) -> None:
        await on.gateway()
        alice = await on.connected("alice")
        log = on.log
        assert isinstance(log, MemoryLog)
        log.failure = DeliveryFailed("on cue")
        sending = asyncio.create_task(alice.send("echo", {"n": 1}))
        await until(lambda: on.gateways[0].counters.command_failures > 0)
        log.failure = None
        command = await sending
        [event] = await take(alice, 1)
        assert event.re == command

    run(story)


def test_unknown_version_is_refused_and_a_known_one_has_its_own_back_ends() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        alice = await on.connected("alice", app_version="v2")
        with pytest.raises(RequestFailed) as refused:
            await alice.ask("who")
        assert refused.value.code == "unknown-version"
        async with EchoBackEnd(on.log, "v2") as newer:
            peers = gateway.coordination
            peers.routes = parse_routes(  # type: ignore[misc]
                b'{"v1": "gw.cmd.v1", "v2": "gw.cmd.v2", "default": "v1"}'
            )
            assert (await alice.ask("who"))["user"] == "alice"
            assert [headers.app_version for _, headers, _, _ in newer.commands] == ["v2"]
            assert on.back_end.commands == []
            assert alice.counts.disconnects == 0

    run(story)


def test_the_client_library_stops_after_a_final_close_code() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        client = EdgeClient([gateway.address], Credentials(token="forged"))
        with pytest.raises(ClientClosed) as refused:
            await client.start()
        assert refused.value.code == CloseCode.AUTH_FAILED
        await client.close()

    run(story)
