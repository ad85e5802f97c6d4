"""Links over real sockets: one per pair of brokers, whichever dials; peers that come and go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from tests.broker.replication.link_rig import LOOPS, QUICK, Broker, Group, identity, run

from kafkaesque.broker.raft.messages import Append, Heartbeat, TimeoutNow
from kafkaesque.broker.raft.types import Entry, EntryKind, LogIndex, Round, Term
from kafkaesque.broker.replication.dialling import PeerAddress
from kafkaesque.broker.replication.links import IntroductionRefused
from kafkaesque.broker.replication.peer_calls import (
    AnswerLost,
    CallFailed,
    PeerBusy,
    PeerUnreachable,
)
from kafkaesque.broker.replication.rules.peer_codec import FrameWriter, PeerPost
from kafkaesque.broker.replication.rules.peer_hello import (
    HelloRefusal,
    PeerHello,
    PeerIdentity,
    Purpose,
    decode_hello_answer,
    encode_hello,
)
from kafkaesque.model.errors import InvariantBroken
from kafkaesque.model.ids import GroupId, MemberId, NodeId
from kafkaesque.testing.clock import ManualClock

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)

Story = Callable[[], Coroutine[Any, Any, None]]


def on_both_loops(story: Story) -> Callable[[str], None]:
    """Runs a coroutine as a test, on asyncio's own event loop and on uvloop."""

    @pytest.mark.parametrize("loop_kind", LOOPS)
    def test(loop_kind: str) -> None:
        run(loop_kind, story())

    test.__doc__ = story.__doc__
    return test


def timeout_now(sender: Broker, to: Broker, term: int = 1) -> TimeoutNow:
    return TimeoutNow(sender.me.member, to.me.member, Term(term))


def append_to(sender: Broker, to: Broker, index: int, batch: bytes) -> Append:
    entry = Entry(LogIndex(index), Term(1), EntryKind.DATA, len(batch), None)
    members = sender.me.member, to.me.member
    return Append(*members, Term(1), LogIndex(index - 1), Term(1), LogIndex(0), (entry,))


# -- messages -------------------------------------------------------------------------------------


@on_both_loops
async def test_messages_of_many_groups_arrive_in_order_in_one_frame() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        before = one.links.status()[TWO].sent_frames
        sent = [(GroupId(n), timeout_now(one, two, n)) for n in range(16, 116)]
        for number, message in sent:
            one.links.send(TWO, number, message)
        await two.inbox.until(lambda: len(two.inbox.messages) == 100)

        assert two.inbox.messages == sent
        assert one.links.status()[TWO].sent_frames == before + 1


@on_both_loops
async def test_batches_of_megabytes_arrive_while_writing_is_paused_and_resumed() -> None:
    no_pings = QUICK._replace(pulse_seconds=30.0, silence_seconds=60.0)
    async with Group(identity(1), identity(2), config=no_pings) as group:
        await group.linked()
        one, two = group.brokers
        batches = [bytes([n]) * 1_500_000 for n in range(10)]
        for n, batch in enumerate(batches):
            one.links.send(TWO, GroupId(16), append_to(one, two, n + 1, batch), [batch])
        await two.inbox.until(lambda: len(two.inbox.messages) == 10)

        received = [message.entries[0].payload for _, message in two.inbox.messages]  # type: ignore[union-attr]
        assert received == batches
        assert one.links.status()[TWO].dropped_messages == 0
        assert one.links.status()[TWO].queued_bytes == 0


@on_both_loops
async def test_batches_may_be_kept_when_later_frames_arrive() -> None:
    """Buffers of frames are reused, but not while there are views of them."""
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        for n in range(1, 31):
            batch = bytes([n]) * 100_000
            one.links.send(TWO, GroupId(16), append_to(one, two, n, batch), [batch])
            await two.inbox.until(lambda n=n: len(two.inbox.messages) == n)

        received = [message.entries[0].payload for _, message in two.inbox.messages]  # type: ignore[union-attr]
        assert received == [bytes([n]) * 100_000 for n in range(1, 31)]


@on_both_loops
async def test_posts_are_delivered_both_ways() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        one.links.post(TWO, 7, b"from one")
        two.links.post(ONE, 8, b"from two")
        await one.inbox.until(lambda: one.inbox.posts)
        await two.inbox.until(lambda: two.inbox.posts)

        assert two.inbox.posts == [(ONE, 7, b"from one")]
        assert one.inbox.posts == [(TWO, 8, b"from two")]


@on_both_loops
async def test_message_to_another_incarnation_of_the_peer_is_not_sent() -> None:
    async with Group(identity(1), identity(2, generation=4)) as group:
        await group.linked()
        one, two = group.brokers
        old = MemberId(2)
        one.links.send(TWO, GroupId(16), TimeoutNow(one.me.member, old, Term(1)))
        one.links.send(TWO, GroupId(17), timeout_now(one, two))
        await two.inbox.until(lambda: two.inbox.messages)

        assert two.inbox.messages == [(GroupId(17), timeout_now(one, two))]
        assert two.links.status()[ONE].strayed_messages == 0


@on_both_loops
async def test_message_in_the_name_of_another_member_is_discarded() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        one.links.send(TWO, GroupId(16), TimeoutNow(MemberId(3), two.me.member, Term(1)))
        one.links.send(TWO, GroupId(17), timeout_now(one, two))
        await two.inbox.until(lambda: two.inbox.messages)

        assert two.inbox.messages == [(GroupId(17), timeout_now(one, two))]
        assert two.links.status()[ONE].strayed_messages == 1


@on_both_loops
async def test_queue_beyond_its_bound_drops_and_reports_it() -> None:
    config = QUICK._replace(queued_bytes_max=1_000_000, silence_seconds=60.0)
    async with Group(identity(1), identity(2), config=config) as group:
        await group.linked()
        one, two = group.brokers
        batch = bytes(300_000)
        for n in range(1, 21):
            one.links.send(TWO, GroupId(16), append_to(one, two, n, batch), [batch])
        await one.inbox.until(lambda: ("dropped", TWO) in one.inbox.events)
        await two.inbox.until(lambda: len(two.inbox.messages) == 3)

        assert one.links.status()[TWO].dropped_messages == 17
        assert one.inbox.events == [("reachable", TWO), ("dropped", TWO)]
        assert one.links.is_up(TWO)


@on_both_loops
async def test_inbox_that_breaks_stops_the_node() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers

        def broken(group: GroupId, message: object) -> None:
            raise InvariantBroken("impossible")

        two.inbox.raft_message = broken  # type: ignore[assignment]
        one.links.send(TWO, GroupId(17), timeout_now(one, two))
        await two.inbox.until(lambda: two.inbox.failures)

        assert isinstance(two.inbox.failures[0], InvariantBroken)


# -- calls ----------------------------------------------------------------------------------------


@on_both_loops
async def test_each_call_gets_its_own_answer() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        first: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def answer(node: NodeId, kind: int, body: bytes) -> bytes | asyncio.Future[bytes]:
            return first if body == b"first" else body.upper()

        two.inbox.answer = answer
        slow = asyncio.create_task(one.links.call(TWO, 1, b"first", 10.0))
        await two.inbox.until(lambda: two.inbox.calls)
        quick = await one.links.call(TWO, 2, b"second", 10.0)
        first.set_result(b"late")

        assert quick == b"SECOND"
        assert await slow == b"late"
        assert two.inbox.calls == [(ONE, 1, b"first"), (ONE, 2, b"second")]


@on_both_loops
async def test_call_whose_handler_fails_returns_the_reason() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers

        async def late(body: bytes) -> bytes:
            raise ValueError(f"not {body.decode()}")

        def answer(node: NodeId, kind: int, body: bytes) -> Coroutine[Any, Any, bytes]:
            if kind == 1:
                raise ValueError("not at once")
            return late(body)

        two.inbox.answer = answer
        with pytest.raises(CallFailed, match="ValueError: not at once"):
            await one.links.call(TWO, 1, b"", 10.0)
        with pytest.raises(CallFailed, match="ValueError: not so"):
            await one.links.call(TWO, 2, b"so", 10.0)
        assert two.inbox.failures == []


@on_both_loops
async def test_call_without_a_link_sends_nothing() -> None:
    async with Group(identity(1)) as group:
        with pytest.raises(PeerUnreachable):
            await group.brokers[0].links.call(TWO, 1, b"", 10.0)


@on_both_loops
async def test_calls_fail_at_their_deadline_or_when_their_link_is_lost() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        two.inbox.answer = lambda node, kind, body: never
        with pytest.raises(AnswerLost, match="time"):
            await one.links.call(TWO, 1, b"", 0.05)
        call = asyncio.create_task(one.links.call(TWO, 1, b"", 60.0))
        await two.inbox.until(lambda: len(two.inbox.calls) == 2)
        two.links.set_peers({})
        with pytest.raises(AnswerLost, match="link"):
            await call
        assert not never.done()


@on_both_loops
async def test_calls_beyond_the_bound_are_refused_on_both_sides() -> None:
    async with Group(identity(1), identity(2), config=QUICK._replace(calls_max=2)) as group:
        await group.linked()
        one, two = group.brokers
        never: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        two.inbox.answer = lambda node, kind, body: never
        calls = [asyncio.create_task(one.links.call(TWO, 1, b"", 60.0)) for _ in range(2)]
        await two.inbox.until(lambda: len(two.inbox.calls) == 2)
        with pytest.raises(PeerBusy, match="2 calls"):
            await one.links.call(TWO, 1, b"", 60.0)

        for call in calls:  # the caller is cancelled; the other side still works on it
            call.cancel()
        await asyncio.wait(calls)
        with pytest.raises(PeerBusy, match="other broker"):
            await one.links.call(TWO, 1, b"", 60.0)
        never.set_result(b"")


# -- one link per pair ----------------------------------------------------------------------------


@on_both_loops
async def test_every_pair_has_one_link_although_all_dial() -> None:
    identities = [identity(n) for n in range(1, 6)]
    async with Group(*identities) as group:
        await group.linked()
        for broker in group.brokers:
            for other in group.brokers:
                if other is not broker:
                    await broker.links.call(other.node, 1, b"", 10.0)

        mine = [sum(s.is_mine for s in b.links.status().values()) for b in group.brokers]
        assert sum(mine) == 10
        assert all(name == "reachable" for b in group.brokers for name, _ in b.inbox.events)


def hello(who: PeerIdentity, attempt: int = 1, purpose: Purpose = Purpose.LINK) -> PeerHello:
    return PeerHello(who, purpose, attempt, 1000)


async def answer_to(broker: Broker, words: PeerHello) -> tuple[HelloRefusal, asyncio.StreamWriter]:
    """Send a hello by hand."""
    reader, writer = await asyncio.open_connection(*broker.address)
    writer.write(encode_hello(words))
    size = int.from_bytes(await reader.readexactly(4), "big")
    return decode_hello_answer(await reader.readexactly(size)).refusal, writer


async def hang_up(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.transport.abort()
        await asyncio.sleep(0)


async def nobody() -> tuple[asyncio.Server, PeerAddress, asyncio.Event, asyncio.Event]:
    """A port that reads and never answers. Records whether a hello arrived and whether that connection
    has ended."""
    was_greeted, was_left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        was_greeted.set()
        with suppress(ConnectionError):
            await reader.read()
        was_left.set()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, PeerAddress(*server.sockets[0].getsockname()[:2]), was_greeted, was_left


@on_both_loops
async def test_crossing_hello_of_the_higher_node_is_refused_and_of_the_lower_accepted() -> None:
    server, address, was_greeted, was_left = await nobody()
    async with Group(identity(2), config=QUICK._replace(dial_seconds_max=30.0)) as group:
        two = group.brokers[0]
        two.links.set_peers({ONE: address})
        await was_greeted.wait()
        refusal_of_one, one = await answer_to(two, hello(identity(1), 1))
        await was_left.wait()
        was_greeted.clear()
        two.links.set_peers({ONE: address, THREE: address})
        await was_greeted.wait()
        refusal_of_three, three = await answer_to(two, hello(identity(3), 1))

        assert refusal_of_one is HelloRefusal.ACCEPTED
        assert refusal_of_three is HelloRefusal.CROSSING
        assert two.inbox.events == [("reachable", ONE)]
        await hang_up(one, three)
    server.close()


@on_both_loops
async def test_newer_incarnation_replaces_the_link_and_older_ones_are_refused() -> None:
    async with Group(identity(1), config=QUICK._replace(silence_seconds=60.0)) as group:
        one = group.brokers[0]
        server, address, *_ = await nobody()
        server.close()
        one.links.set_peers({TWO: address})
        lives = [
            (identity(2, incarnation=5), 1),
            (identity(2, incarnation=6), 1),
            (identity(2, incarnation=5), 9),  # an earlier start
            (identity(2, incarnation=6), 1),  # an earlier attempt
            (identity(2, incarnation=6), 2),
            (identity(2, incarnation=1, generation=1), 1),  # a new disk
            (identity(2, incarnation=99), 1),
        ]
        answers = [await answer_to(one, hello(who, n)) for who, n in lives]

        yes, old = HelloRefusal.ACCEPTED, HelloRefusal.OLD_INCARNATION
        assert [refusal for refusal, _ in answers] == [yes, yes, old, old, yes, yes, old]
        up, down = ("reachable", TWO), ("unreachable", TWO)
        assert one.inbox.events == [up, down, up, down, up, down, up]
        assert one.links.peer(TWO) == lives[5][0]
        await hang_up(*[writer for _, writer in answers])


@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize(
    ("who", "refusal"),
    [
        (identity(1), HelloRefusal.SAME_NODE),
        (identity(2, cluster="other"), HelloRefusal.WRONG_CLUSTER),
        # Although its node id is one of ours.
        (identity(1, cluster="other"), HelloRefusal.WRONG_CLUSTER),
        (identity(2, cluster=""), HelloRefusal.NOT_A_PEER),
        (identity(9), HelloRefusal.NOT_A_PEER),
    ],
)
def test_strangers_get_no_link(loop_kind: str, who: Any, refusal: HelloRefusal) -> None:
    async def story() -> None:
        async with Group(identity(1)) as group:
            one = group.brokers[0]
            one.links.set_peers({TWO: PeerAddress("127.0.0.1", 1)})
            answer, writer = await answer_to(one, hello(who, 1))
            assert answer is refusal
            assert one.inbox.events == []
            await hang_up(writer)

    run(loop_kind, story())


@on_both_loops
async def test_bytes_after_the_hello_are_read() -> None:
    async with Group(identity(1), identity(2)) as group:
        one, two = group.brokers
        two.links.set_peers({ONE: PeerAddress("127.0.0.1", 1)})
        post = b"\x00\x00\x00\x0a" + b"\x03\x00\x07\x00\x00\x00\x03abc"
        _, writer = await asyncio.open_connection(*two.address)
        writer.write(encode_hello(hello(one.me, 1)) + post)
        await two.inbox.until(lambda: two.inbox.posts)

        assert two.inbox.posts == [(ONE, 7, b"abc")]
        await hang_up(writer)


@on_both_loops
async def test_peer_that_breaks_the_protocol_loses_its_link() -> None:
    async with Group(identity(1)) as group:
        one = group.brokers[0]
        one.links.set_peers({TWO: PeerAddress("127.0.0.1", 1)})
        _, writer = await answer_to(one, hello(identity(2), 1))
        writer.write(b"\x00\x00\x00\x01\xff")
        await one.inbox.until(lambda: ("unreachable", TWO) in one.inbox.events)

        assert one.inbox.failures == []
        await hang_up(writer)


@on_both_loops
async def test_broken_link_is_reported_at_once_and_replaced() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        for transport in (*one.connections, *two.connections):
            transport.abort()
        both = [("unreachable", ONE), ("reachable", ONE)]
        await two.inbox.until(lambda: two.inbox.events[-2:] == both)
        await one.inbox.until(lambda: one.links.is_up(TWO))

        assert await one.links.call(TWO, 1, b"abc", 10.0) == b"cba"


@on_both_loops
async def test_restarted_broker_is_linked_again_as_a_new_incarnation() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        await two.stop()
        await one.inbox.until(lambda: not one.links.is_up(TWO))
        assert one.links.lease_until(TWO) == 0.0
        again = await group.add(identity(2, incarnation=2), port=two.address.port)
        again.links.set_peers({ONE: one.address})
        await one.inbox.until(lambda: one.links.is_up(TWO))

        assert one.links.peer(TWO) == again.me


@on_both_loops
async def test_broker_dropped_from_the_peers_is_unlinked() -> None:
    async with Group(identity(1), identity(2), identity(3)) as group:
        await group.linked()
        one, two, _ = group.brokers
        one.links.set_peers({THREE: group.brokers[2].address})
        await two.inbox.until(lambda: ("unreachable", ONE) in two.inbox.events)

        assert set(one.links.status()) == {THREE}
        assert one.links.is_up(THREE)


# -- introductions --------------------------------------------------------------------------------


@on_both_loops
async def test_broker_without_a_cluster_introduces_itself_asks_and_joins() -> None:
    async with Group(identity(1), identity(3, cluster="", incarnation=7)) as group:
        one, three = group.brokers
        found = await three.links.introduce(one.address)
        answer = await three.links.call(found.node_id, 1, b"join", 10.0)
        assert (found, answer) == (one.me, b"nioj")
        assert one.inbox.calls == [(THREE, 1, b"join")]
        assert one.inbox.events == three.inbox.events == []

        three.me = identity(3, generation=2, incarnation=7)
        three.links.identify(three.me)
        await group.linked()
        assert one.links.peer(THREE) == three.me


@on_both_loops
async def test_introduction_ends_when_there_is_a_link() -> None:
    async with Group(identity(1), identity(2)) as group:
        one, two = group.brokers
        await two.links.introduce(one.address)
        introduction = one.connections[0]
        await group.linked()
        while not introduction.is_closing():
            await two.links.call(ONE, 1, b"", 10.0)

        assert [name for name, _ in two.inbox.events] == ["reachable"]


@on_both_loops
async def test_introduction_carries_no_raft_messages() -> None:
    async with Group(identity(1), identity(3)) as group:
        one, three = group.brokers
        one.links.set_peers({THREE: PeerAddress("127.0.0.1", 1)})
        _, writer = await answer_to(one, hello(three.me, 1, Purpose.INTRODUCTION))
        frame = FrameWriter()
        frame.add(GroupId(1), timeout_now(three, one), ())
        frame.add_post(PeerPost(1, b"end"))
        writer.writelines(frame.take())
        await one.inbox.until(lambda: one.inbox.posts)

        assert one.inbox.messages == []
        await hang_up(writer)


@on_both_loops
async def test_introduction_to_itself_or_to_a_closed_port_fails() -> None:
    async with Group(identity(1)) as group:
        one = group.brokers[0]
        with pytest.raises(IntroductionRefused) as caught:
            await one.links.introduce(one.address)
        assert caught.value.answer.refusal is HelloRefusal.SAME_NODE
        server, address, *_ = await nobody()
        server.close()
        await server.wait_closed()
        with pytest.raises(OSError, match=r"refused|Connect"):
            await one.links.introduce(address)


@on_both_loops
async def test_introductions_are_bounded() -> None:
    async with Group(identity(1), config=QUICK._replace(introductions_max=2)) as group:
        one = group.brokers[0]
        words = [hello(identity(n), 1, Purpose.INTRODUCTION) for n in (3, 4, 5)]
        answers = [await answer_to(one, word) for word in words]

        yes, no = HelloRefusal.ACCEPTED, HelloRefusal.TOO_MANY
        assert [refusal for refusal, _ in answers] == [yes, yes, no]
        await hang_up(*[writer for _, writer in answers])


# -- liveness ------------------------------------------------------------------------------------


@on_both_loops
async def test_answered_ping_gives_a_lease() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        before = one.links.clock.monotonic()
        await one.links.call(TWO, 1, b"", 10.0)  # answered after the first ping

        now = one.links.clock.monotonic()
        lease = one.links.lease_until(TWO)
        length = QUICK.silence_seconds - QUICK.lease_margin_seconds
        assert before - QUICK.silence_seconds < lease <= now + length
        assert one.links.status()[TWO].round_trip_seconds > 0.0
        assert two.links.lease_until(THREE) == 0.0


@on_both_loops
async def test_stalled_event_loop_considers_no_peer_silent() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        for _ in range(3):
            time.sleep(1.5 * QUICK.silence_seconds)  # the stall, in which nothing is read
            await asyncio.sleep(0)
            await one.links.call(TWO, 1, b"", 10.0)

        assert one.inbox.events == [("reachable", TWO)]
        assert two.inbox.events == [("reachable", ONE)]


@on_both_loops
async def test_lease_grows_with_pings_and_ends_with_the_link() -> None:
    clock = ManualClock()
    async with Group(identity(1), identity(2), clock=clock) as group:
        await group.linked()
        one, two = group.brokers
        length = QUICK.silence_seconds - QUICK.lease_margin_seconds
        await one.links.call(TWO, 1, b"", 1e6)
        assert one.links.lease_until(TWO) == pytest.approx(clock.monotonic() + length, abs=1e-4)
        clock.advance(1.0)
        while one.links.lease_until(TWO) < clock.monotonic():
            await one.links.call(TWO, 1, b"", 1e6)
        two.links.set_peers({})
        await one.inbox.until(lambda: not one.links.is_up(TWO))

        assert one.links.lease_until(TWO) == 0.0


@pytest.mark.parametrize("loop_kind", LOOPS)
@pytest.mark.parametrize(("cut_in", "cut_out"), [(True, True), (True, False), (False, True)])
def test_partition_is_detected_by_both_and_heals(
    loop_kind: str, cut_in: bool, cut_out: bool
) -> None:
    async def story() -> None:
        async with Group(identity(1), identity(2)) as group:
            await group.linked()
            one, two = group.brokers
            one.links.partition(TWO, cut_in=cut_in, cut_out=cut_out)
            for broker, other in ((one, TWO), (two, ONE)):
                lost = ("unreachable", other)
                await broker.inbox.until(lambda b=broker, lost=lost: lost in b.inbox.events)
            one.links.heal(TWO)
            await group.linked()

            assert await one.links.call(TWO, 1, b"ab", 10.0) == b"ba"

    run(loop_kind, story())


@on_both_loops
async def test_no_link_is_made_across_a_partition() -> None:
    async with Group(identity(1), identity(2)) as group:
        one, two = group.brokers
        one.links.partition(TWO)
        group.introduce_all()
        await two.inbox.until(lambda: len(two.connections) >= 3)
        await one.inbox.until(lambda: len(one.connections) >= 3)

        assert one.inbox.events == two.inbox.events == []


@on_both_loops
async def test_partition_in_one_direction_lets_the_other_through() -> None:
    async with Group(identity(1), identity(2), config=QUICK._replace(silence_seconds=60)) as group:
        await group.linked()
        one, two = group.brokers
        one.links.partition(TWO, cut_in=False, cut_out=True)
        one.links.post(TWO, 1, b"lost")
        two.links.post(ONE, 2, b"arrives")
        await one.inbox.until(lambda: one.inbox.posts)
        one.links.heal(TWO)
        one.links.post(TWO, 3, b"arrives too")
        await two.inbox.until(lambda: two.inbox.posts)

        assert one.inbox.posts == [(TWO, 2, b"arrives")]
        assert two.inbox.posts == [(ONE, 3, b"arrives too")]


@on_both_loops
async def test_messages_queued_before_a_close_are_still_sent() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        batch = bytes(3_000_000)
        one.links.send(TWO, GroupId(16), append_to(one, two, 1, batch), [batch])
        one.links.send(TWO, GroupId(16), timeout_now(one, two))
        await one.links.close()
        await two.inbox.until(lambda: ("unreachable", ONE) in two.inbox.events)

        assert [type(message) for _, message in two.inbox.messages] == [Append, TimeoutNow]


@on_both_loops
async def test_idle_links_send_only_pings() -> None:
    async with Group(identity(1), identity(2)) as group:
        await group.linked()
        one, two = group.brokers
        await one.links.call(TWO, 1, b"", 10.0)
        heartbeat = Heartbeat(one.me.member, two.me.member, Term(1), LogIndex(1), Round(1), True)
        one.links.send(TWO, GroupId(16), heartbeat)
        await two.inbox.until(lambda: two.inbox.messages)

        assert one.links.status()[TWO].sent_messages == 1
        assert one.links.status()[TWO].sent_frames == 2
