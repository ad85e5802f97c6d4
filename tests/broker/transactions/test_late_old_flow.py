"""The old flow, where the epoch identifies no transaction: requests are delayed and repeated, coordinators move.

A client runs one transaction after the other, over one connection to each broker. Sometimes it stops
waiting, closes the connection, opens another and repeats the request until it is answered. The
abandoned request stays in the network and arrives at its broker at any time, any number of times. The
coordinator moves from broker to broker and back. No late request may change anything.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from random import Random
from typing import NamedTuple, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.broker.transactions.connection_fence import ConnectionFence
from kafkaesque.broker.transactions.registry import TransactionRegistry
from kafkaesque.broker.transactions.types import (
    NOBODY,
    OLD_FLOW,
    AddAnswer,
    AnswerValue,
    EndAnswer,
    EndRequest,
    InitAnswer,
    InitRequest,
    PartitionsRequest,
    TransactionConfig,
    TransactionEffects,
)
from kafkaesque.model.clock import Moment
from kafkaesque.model.errors import ErrorCode
from kafkaesque.model.ids import PartitionIndex, ProducerId, TimestampMs, TopicPartition

NAME = "tx"
BROKERS = 2
Ask: TypeAlias = InitRequest | PartitionsRequest | EndRequest


class Connection(NamedTuple):
    broker: int
    made_at: float


class Late(NamedTuple):
    connection: Connection
    ask: Ask


class World:
    def __init__(self) -> None:
        self.time = count(1)
        self.records: list[tuple[bytes, bytes | None]] = []
        self.producer_ids = count(100)
        self.held: list[Late] = []
        self.open: dict[tuple[int, bool], Connection] = {}
        """The client's connections: to each broker one for InitProducerId and one for the rest."""
        self.me = NOBODY
        self.is_begun = False
        self.coordinator = 0
        self.registry = TransactionRegistry(TransactionConfig())
        self.move(0)
        self.init(give_up=0)

    @property
    def now(self) -> Moment:
        return Moment(float(next(self.time)), TimestampMs(0))

    def move(self, broker: int) -> None:
        """`broker` becomes the coordinator, with the state in the log."""
        self.coordinator = broker
        self.registry = TransactionRegistry(TransactionConfig(), since=self.now.monotonic)
        for record in self.records:
            self.registry.replay(*record)
        self.carry_out(self.registry.loaded(self.now))

    def carry_out(self, effects: TransactionEffects) -> AnswerValue | None:
        self.records += effects.records
        for markers in effects.markers:
            self.carry_out(
                self.registry.markers_written(NAME, markers.producer, markers.partitions, self.now)
            )
        return effects.answers[0].value if effects.answers else None

    def arrive(self, connection: Connection, ask: Ask) -> AnswerValue | None:
        """What the coordinator answers; None if it closes the connection, or is another broker."""
        registry = self.registry
        if connection.broker != self.coordinator:
            return None
        if isinstance(ask, InitRequest):
            request = InitRequest(
                transactional_id=NAME,
                timeout_ms=ask.timeout_ms,
                known=ask.known,
                spare_producer_id=ProducerId(next(self.producer_ids)),
                connected_at=connection.made_at,
            )
            if not registry.admits_init(request):
                return None
            return self.carry_out(registry.init_producer(request, 0, self.now))
        if not registry.admits(NAME, ask.producer, connection.made_at):
            return None
        if isinstance(ask, EndRequest):
            return self.carry_out(registry.end(ask, 0, self.now))
        return self.carry_out(registry.add_partitions(ask, 0, self.now))

    # -- the client ---------------------------------------------------------------------------------

    def connection(self, ask: Ask) -> Connection:
        kind = (self.coordinator, isinstance(ask, InitRequest))
        if kind not in self.open:
            self.open[kind] = Connection(self.coordinator, float(next(self.time)))
        return self.open[kind]

    def hang_up(self, ask: Ask) -> Connection | None:
        return self.open.pop((self.coordinator, isinstance(ask, InitRequest)), None)

    def ask(self, ask: Ask, give_up: int) -> AnswerValue:
        """Abandons this many connections; then repeats the request until it is answered."""
        for _ in range(give_up):
            self.held.append(Late(self.connection(ask), ask))
            self.hang_up(ask)
        for _ in range(3):
            answer = self.arrive(self.connection(ask), ask)
            if answer is None:  # the connection was closed
                self.hang_up(ask)
            elif answer != InitAnswer(error=ErrorCode.CONCURRENT_TRANSACTIONS):
                return answer
        raise AssertionError("a live client is rejected")

    def init(self, give_up: int) -> None:
        answer = self.ask(InitRequest(transactional_id=NAME, timeout_ms=60_000), give_up)
        assert isinstance(answer, InitAnswer)
        assert answer.error is ErrorCode.NONE
        self.me, self.is_begun = answer.producer, False

    def add(self, number: int, give_up: int) -> None:
        partition = TopicPartition("t", PartitionIndex(number % 3))
        request = PartitionsRequest(
            transactional_id=NAME, producer=self.me, partitions=frozenset([partition])
        )
        assert self.ask(request, give_up) == AddAnswer()
        self.is_begun = True
        assert partition in self.registry.describe(NAME).partitions

    def end(self, give_up: int, *, is_commit: bool) -> None:
        if not self.is_begun:
            return
        request = EndRequest(
            transactional_id=NAME, producer=self.me, is_commit=is_commit, flow=OLD_FLOW
        )
        answer = self.ask(request, give_up)
        assert isinstance(answer, EndAnswer)
        assert answer.error is ErrorCode.NONE
        self.is_begun = False
        wanted = "CompleteCommit" if is_commit else "CompleteAbort"
        assert self.registry.describe(NAME).state == wanted

    # -- late requests -------------------------------------------------------------------------------

    def late(self, number: int) -> None:
        """It comes twice, and not for the last time."""
        if self.held:
            one = self.held[number % len(self.held)]
            before = self.registry.describe(NAME)
            for _ in range(2):
                self.arrive(*one)
                assert self.registry.describe(NAME) == before, one

    def do(self, action: str, number: int) -> None:
        give_up = (0, 0, 1, 2)[number % 4]
        match action:
            case "add":
                self.add(number, give_up)
            case "commit" | "abort":
                self.end(give_up, is_commit=action == "commit")
            case "late":
                self.late(number)
            case "init":
                self.init(give_up)
            case "move":
                self.move(number % BROKERS)
            case "hang up":
                self.open.clear()


ACTIONS = ("add", "add", "commit", "abort", "late", "late", "late", "init", "move", "hang up")
steps = st.lists(
    st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1 << 16)), min_size=5, max_size=80
)


def run(script: list[tuple[str, int]]) -> None:
    world = World()
    for action, number in script:
        world.do(action, number)


@settings(max_examples=300, deadline=None)
@given(steps)
def test_delayed_requests_change_nothing_and_live_clients_are_admitted(
    script: list[tuple[str, int]],
) -> None:
    run(script)


# -- planted bugs: the property must find them --------------------------------------------------------


def every_connection_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionFence, "admits", lambda *_: True)


def every_init_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConnectionFence, "admits_init", lambda *_: True)


def second_time_is_admitted(monkeypatch: pytest.MonkeyPatch) -> None:
    doubted: set[float] = set()
    admits = ConnectionFence.admits

    def once(callers: ConnectionFence, connected_at: float) -> bool:
        is_admitted = admits(callers, connected_at) or connected_at in doubted
        doubted.add(connected_at)
        return is_admitted

    monkeypatch.setattr(ConnectionFence, "admits", once)


def new_coordinator_hears_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trusting(ConnectionFence):
        def __init__(self, since: float = 0.0, init: float | None = None) -> None:
            super().__init__(init=init)

    monkeypatch.setattr("kafkaesque.broker.transactions.registry.ConnectionFence", Trusting)


BUGS = [
    every_connection_is_admitted,
    every_init_is_admitted,
    second_time_is_admitted,
    new_coordinator_hears_everybody,
]


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    random = Random(1)
    for _ in range(300):
        script = [
            (random.choice(ACTIONS), random.randrange(1 << 16))
            for _ in range(random.randrange(5, 80))
        ]
        try:
            run(script)
        except AssertionError:
            return
    raise AssertionError("300 runs did not find it")
