"""The links of a broker to all others: one per pair, whichever side dialled it.

This module decides which connection is the link of a pair and which peers are reachable, and has
the interface for sending. `peer_codec` has the bytes, `peer_hello` the rules of the hello, `link`
one connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from random import Random
from typing import NamedTuple

from kafkaesque.broker.raft.messages import Message
from kafkaesque.broker.replication.dialling import Dialler, PeerAddress, greet
from kafkaesque.broker.replication.link import Link, LinkConfig, LinkInbox, Origin
from kafkaesque.broker.replication.peer_calls import PeerBusy, PeerUnreachable
from kafkaesque.broker.replication.rules.peer_codec import (
    BatchReader,
    Blob,
    PeerCall,
    PeerPost,
    as_it_is,
)
from kafkaesque.broker.replication.rules.peer_hello import (
    NO_INCARNATION,
    HelloAnswer,
    HelloRefusal,
    PeerHello,
    PeerIdentity,
    PeerLinkState,
    Purpose,
    decode_hello,
    encode_hello_answer,
    judge,
)
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.ids import GroupId, NodeId
from kafkaesque.wire.frames import BufferPool

logger = logging.getLogger("kafkaesque.links")


class LinkStatus(NamedTuple):
    """One peer's link, for metrics. Counts begin with the link."""

    is_up: bool
    is_mine: bool = False
    sent_bytes: int = 0
    received_bytes: int = 0
    sent_frames: int = 0
    sent_pulses: int = 0
    sent_messages: int = 0
    dropped_messages: int = 0
    strayed_messages: int = 0
    queued_bytes: int = 0
    calls: int = 0
    round_trip_seconds: float = 0.0


class IntroductionRefused(ConnectionError):
    """A broker answered our hello and rejected it."""

    def __init__(self, answer: HelloAnswer) -> None:
        super().__init__(f"node {answer.answerer.node_id} refused: {answer.refusal.name}")
        self.answer = answer


class _Cut(NamedTuple):
    is_in: bool
    is_out: bool


class _Peer:
    """A broker that must have a link. At most one of `link` and `greeting` is set."""

    __slots__ = ("dialler", "greeting", "incarnation_id", "link", "refusal")

    def __init__(self, dialler: Dialler) -> None:
        self.dialler = dialler
        self.link: Link | None = None
        self.greeting: Link | None = None
        """The connection on which we sent a hello that is not answered yet."""
        self.incarnation_id = NO_INCARNATION
        """The newest incarnation that we have linked to."""
        self.refusal = HelloRefusal.ACCEPTED
        """Its last answer."""

    @property
    def link_state(self) -> PeerLinkState:
        link = self.link
        return PeerLinkState(
            newest_incarnation=self.incarnation_id,
            attempt=None if link is None or link.origin.is_mine else link.origin.attempt,
            is_mine=link is not None and link.origin.is_mine,
            is_greeting=self.greeting is not None,
        )


class Links:
    """All links of this broker. Runs entirely on the event loop `loop`.

    `fail` is called for errors that must stop the node.
    """

    def __init__(
        self,
        me: PeerIdentity,
        loop: asyncio.AbstractEventLoop,
        inbox: LinkInbox,
        clock: Clock,
        *,
        fail: Callable[[BaseException], None],
        config: LinkConfig = LinkConfig(),  # noqa: B008 - immutable
        random: Random | None = None,
        read_batch: BatchReader = as_it_is,
    ) -> None:
        self.me = me
        self.config = config
        self.clock = clock
        self.inbox = inbox
        self.pool = BufferPool()
        self.read_batch = read_batch
        self.fail = fail
        self._loop = loop
        self._random = random or Random()  # noqa: S311 - jitter only
        self._peers: dict[NodeId, _Peer] = {}
        self._seeds: dict[NodeId, Link] = {}
        """Brokers to which we introduced ourselves."""
        self._introduced: set[Link] = set()
        """Connections of brokers that introduced themselves to us."""
        self._cuts: dict[NodeId, _Cut] = {}
        self._attempt = 0
        self._timer = loop.call_later(config.pulse_seconds, self._pulse)

    # -- peers -----------------------------------------------------------------------------------

    def identify(self, me: PeerIdentity) -> None:
        """Changes our identity after this broker joined a cluster. Existing links end."""
        self.me = me
        greeting = [peer.greeting for peer in self._peers.values() if peer.greeting is not None]
        for link in (*self._all(), *greeting):
            link.end("this broker's identity changed")

    def set_peers(self, peers: Mapping[NodeId, PeerAddress]) -> None:
        """Sets the brokers that have a link. Links to any others end."""
        for node in self._peers.keys() - peers.keys():
            self._forget(node)
        for node, address in peers.items():
            known = self._peers.get(node)
            if known is not None:
                known.dialler.set_address(address)
            elif node != self.me.node_id:
                dialler = Dialler(
                    self._loop,
                    self.config,
                    self._random,
                    address,
                    partial(self._new_link, node),
                    is_lower=self.me.node_id < node,
                )
                self._peers[node] = _Peer(dialler)

    def _forget(self, node: NodeId) -> None:
        peer = self._peers[node]
        peer.dialler.stop()
        for link in (peer.link, peer.greeting):
            if link is not None:
                link.end("no longer a peer")
        del self._peers[node]

    def _new_link(self, node: NodeId) -> Link:
        origin = Origin(True, Purpose.LINK, self._next_attempt(), node)
        return Link(self, self._loop, origin)

    def _next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    async def introduce(self, address: PeerAddress) -> PeerIdentity:
        """Connects to an address and returns the identity of the broker there, which `call` can
        reach by node id from then on.

        Raises IntroductionRefused, or another OSError if there is no answer.
        """
        origin = Origin(True, Purpose.INTRODUCTION, self._next_attempt(), None)
        link = Link(self, self._loop, origin)
        answer = await greet(link, self._loop, address, self.config.dial_seconds_max)
        if answer.refusal is not HelloRefusal.ACCEPTED:
            raise IntroductionRefused(answer)
        return answer.answerer

    def adopt(self, transport: asyncio.Transport, frame: bytes | memoryview, rest: bytes) -> None:
        """Takes over a connection to our Kafka port that sent a hello (`is_peer_hello`), and
        perhaps `rest` after it. If the hello is accepted, the transport gets another protocol, and
        the previous protocol gets no further callbacks. Otherwise the connection is closed, which
        its protocol notices as usual."""
        try:
            hello, is_our_version = decode_hello(frame)
        except ProtocolError as error:
            logger.warning("closing a connection: %s", error)
            transport.abort()
            return
        if hello.caller.node_id in self._cuts or self._is_closed:
            transport.abort()
            return
        refusal = self._judge(hello) if is_our_version else HelloRefusal.WRONG_VERSION
        silence_ms = self.config.silence_ms
        answer = HelloAnswer(refusal, self.me, silence_ms, hello.correlation_id)
        if refusal is not HelloRefusal.ACCEPTED:
            transport.write(encode_hello_answer(answer))
            transport.close()
            return
        origin = Origin(False, hello.purpose, hello.attempt, hello.caller.node_id)
        link = Link(self, self._loop, origin)
        link.adopt(transport, hello.caller, encode_hello_answer(answer))
        if hello.purpose is Purpose.LINK:
            self._establish(link, hello.caller, hello.silence_ms)
        else:
            self._introduced.add(link)
            link.open(hello.silence_ms)
        link.feed(rest)

    def _judge(self, hello: PeerHello) -> HelloRefusal:
        peer = self._peers.get(hello.caller.node_id)
        refusal = judge(self.me, hello, peer.link_state if peer else None)
        if refusal is HelloRefusal.ACCEPTED and hello.purpose is Purpose.INTRODUCTION:
            is_full = len(self._introduced) >= self.config.introductions_max
            return HelloRefusal.TOO_MANY if is_full else refusal
        return refusal

    # -- called by links --------------------------------------------------------------------------

    def may_greet(self, link: Link) -> bool:
        node = link.origin.node_id
        if node is None:
            return True
        peer = self._peers.get(node)
        if peer is None or peer.link is not None or node in self._cuts:
            return False
        peer.greeting = link
        return True

    def answered(self, link: Link, answer: HelloAnswer) -> None:
        answerer = answer.answerer
        if answer.refusal is not HelloRefusal.ACCEPTED:
            self._note_refusal(link, answer.refusal)
            link.end(f"refused: {answer.refusal.name}")
        elif answerer.node_id in self._cuts:
            link.end("cut")
        elif link.origin.purpose is Purpose.INTRODUCTION:
            link.peer = answerer
            former = self._seeds.get(answerer.node_id)
            self._seeds[answerer.node_id] = link
            if former is not None:
                former.end("introduced again")
            link.open(answer.silence_ms)
        elif answerer.node_id != link.origin.node_id:
            link.end(f"node {answerer.node_id} answered instead")
        elif answerer.cluster_id != self.me.cluster_id:
            link.end("the peer belongs to another cluster")
        elif answerer.incarnation_id < self._peers[answerer.node_id].incarnation_id:
            link.end("an earlier incarnation answered")
        else:
            link.peer = answerer
            self._establish(link, answerer, answer.silence_ms)

    def _note_refusal(self, link: Link, refusal: HelloRefusal) -> None:
        """Logs each refusal once, since dialling is repeated."""
        peer = self._peers.get(link.origin.node_id) if link.origin.node_id is not None else None
        if (
            peer is not None
            and peer.refusal is not refusal
            and refusal is not HelloRefusal.CROSSING
        ):
            peer.refusal = refusal
            # While a broker joins, some brokers learn of it sooner than others.
            level = logging.INFO if refusal is HelloRefusal.NOT_A_PEER else logging.WARNING
            logger.log(level, "%s refused a link: %s", link, refusal.name)

    def _establish(self, link: Link, other: PeerIdentity, silence_ms: int) -> None:
        peer = self._peers[other.node_id]
        former, greeting = peer.link, peer.greeting
        peer.greeting = None
        if former is not None:
            former.end("replaced")
        if greeting is not None and greeting is not link:
            greeting.end("the other side's connection is the link")
        peer.link = link
        peer.incarnation_id = other.incarnation_id
        peer.refusal = HelloRefusal.ACCEPTED
        peer.dialler.linked()
        logger.info("linked to %s", link)
        link.open(silence_ms)
        self._notify(self.inbox.reachable, other.node_id)

    def lost(self, link: Link, reason: str) -> None:
        self._introduced.discard(link)
        node = link.peer.node_id if link.peer is not None else link.origin.node_id
        if node is None:
            return
        if self._seeds.get(node) is link:
            del self._seeds[node]
        peer = self._peers.get(node)
        if peer is None:
            return
        if peer.greeting is link:
            peer.greeting = None
        if peer.link is link:
            peer.link = None
            logger.info("the link to %s is gone: %s", link, reason)
            peer.dialler.unlinked()
            self._notify(self.inbox.unreachable, node)

    def dropped(self, node: NodeId) -> None:
        self._notify(self.inbox.dropped, node)

    def _notify(self, inbox: Callable[[NodeId], None], node: NodeId) -> None:
        if self._is_closed:
            return
        try:
            inbox(node)
        except Exception as error:  # noqa: BLE001 - supervisor: an invariant is broken, the node stops
            self.fail(error)

    # -- sending ---------------------------------------------------------------------------------

    def send(
        self, node: NodeId, group: GroupId, message: Message, blobs: Sequence[Blob | None] = ()
    ) -> None:
        """Sends a Raft message. It is lost if the broker is unreachable or another incarnation runs
        there."""
        link = self._link(node)
        if link is not None and link.member == message.to:
            link.writer.add_message(group, message, blobs)

    async def call(self, node: NodeId, kind: int, body: bytes, timeout_seconds: float) -> bytes:
        """Calls a peer, or a broker to which we introduced ourselves. Raises a PeerError."""
        link = self._link(node) or self._seeds.get(node)
        if link is None:
            raise PeerUnreachable(f"no link to node {node}")
        number, future = link.calls.begin(self.clock.monotonic() + timeout_seconds)
        try:
            if not link.writer.add(PeerCall(number, kind, body)):
                raise PeerBusy(f"the send queue is full for node {node}")
            return await future
        finally:
            link.calls.forget(number)

    def post(self, node: NodeId, kind: int, body: bytes) -> None:
        """Sends a message without delivery guarantee."""
        link = self._link(node)
        if link is not None:
            link.writer.add(PeerPost(kind, body))

    # -- state ------------------------------------------------------------------------------------

    def _link(self, node: NodeId) -> Link | None:
        peer = self._peers.get(node)
        return peer.link if peer is not None else None

    def is_up(self, node: NodeId) -> bool:
        return self._link(node) is not None

    def peer(self, node: NodeId) -> PeerIdentity | None:
        """Returns the incarnation of the broker that we are linked to."""
        link = self._link(node)
        return link.peer if link is not None else None

    def lease_until(self, node: NodeId) -> float:
        """Returns the time, on our monotonic clock, until which that broker does not consider us
        silent. 0.0 without a link."""
        link = self._link(node)
        return link.liveness.lease_until if link is not None else 0.0

    def status(self) -> dict[NodeId, LinkStatus]:
        return {node: _status(peer.link) for node, peer in self._peers.items()}

    def _all(self) -> Iterator[Link]:
        for peer in self._peers.values():
            if peer.link is not None:
                yield peer.link
        yield from self._seeds.values()
        yield from self._introduced

    # -- timer and close --------------------------------------------------------------------------

    def _pulse(self) -> None:
        # Rescheduled from now and not from when it was due, so that every socket is read between
        # two pulses.
        self._timer = self._loop.call_later(self.config.pulse_seconds, self._pulse)
        now = self.clock.monotonic()
        for link in tuple(self._all()):
            link.pulse(now)
        for node, seed in tuple(self._seeds.items()):
            if self.is_up(node) and not seed.calls:
                seed.end("replaced by a link")

    @property
    def _is_closed(self) -> bool:
        return self._timer.cancelled()

    async def close(self, patience_seconds: float = 1.0) -> None:
        """Flushes and ends every link. No peer is reported as unreachable."""
        self._timer.cancel()
        links = tuple(self._all())
        diallers = [peer.dialler for peer in self._peers.values()]
        for link in links:
            link.end("this broker stops", flush=True)
        self.set_peers({})
        for dialler in diallers:
            await dialler.stopped()
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                for link in links:
                    await link.closed.wait()
        for link in links:
            link.abort()

    # -- for tests --------------------------------------------------------------------------------

    def abort(self) -> None:
        """Closes all connections at once, like a killed process. `close` must still be called."""
        self._timer.cancel()
        for link in tuple(self._all()):
            link.abort()

    def partition(self, node: NodeId, *, cut_in: bool = True, cut_out: bool = True) -> None:
        """Simulates a network that loses everything from, or to, that broker. No new link can be
        made, as that needs both directions; an existing one stays until its silence is noticed."""
        self._cuts[node] = _Cut(cut_in, cut_out)
        self._cut_links(node, _Cut(cut_in, cut_out))

    def heal(self, node: NodeId) -> None:
        self._cuts.pop(node, None)
        self._cut_links(node, _Cut(False, False))

    def _cut_links(self, node: NodeId, cut: _Cut) -> None:
        for link in self._all():
            if link.peer is not None and link.peer.node_id == node:
                link.drops_incoming, link.writer.is_cut = cut


def _status(link: Link | None) -> LinkStatus:
    if link is None:
        return LinkStatus(is_up=False)
    writer = link.writer
    return LinkStatus(
        is_up=True,
        is_mine=link.origin.is_mine,
        sent_bytes=writer.sent.size_bytes,
        received_bytes=link.received_bytes,
        sent_frames=writer.sent.frames,
        sent_pulses=writer.sent.pulses,
        sent_messages=writer.sent.messages,
        dropped_messages=writer.sent.dropped_messages,
        strayed_messages=link.strayed_count,
        queued_bytes=writer.queued_bytes,
        calls=len(link.calls),
        round_trip_seconds=link.liveness.round_trip_seconds,
    )
