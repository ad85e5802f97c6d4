"""Any interleaving and any crash: state equals the journal, commands take effect once, order holds."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.chat.world import World

USERS = ("ann", "bob", "cat", "dan")
ROOMS = ("kafka", "raft")

user = st.sampled_from(USERS)
action = st.one_of(
    st.tuples(st.just("send"), user, user),
    st.tuples(st.just("repeat"), st.integers(0, 30)),
    st.tuples(st.just("received"), user),
    st.tuples(st.just("read"), user),
    st.tuples(st.just("delete"), user),
    st.tuples(st.just("room"), user, st.sampled_from(["create", "join", "leave", "post"]),
              st.sampled_from(ROOMS)),
    st.tuples(st.just("step"), st.integers(0, 100)),
    st.tuples(st.just("step"), st.integers(0, 100)),
    st.tuples(st.just("step"), st.integers(0, 100)),
    st.tuples(st.just("crash"), st.integers(0, 2)),
    st.tuples(st.just("snapshot"), st.integers(0, 2)),
)  # fmt: skip


class Play:
    """Performs the actions that hypothesis chooses and records what was sent, in order."""

    def __init__(self) -> None:
        self.world = World()
        self.world.open(*USERS)
        self.sent: list[tuple[str, str, dict[str, object], str]] = []

    def send(self, who: str, op: str, **body: object) -> None:
        self.sent.append((who, op, body, self.world.send(who, op, **body)))

    def marks(self, who: str) -> list[str]:
        return [str(body["message_id"]) for body in self.world.bodies(who, "message.new")]

    def act(self, one: tuple[object, ...]) -> None:
        match one:
            case ("send", str(who), str(to)):
                self.send(who, "message.send", to=to, text=f"{len(self.sent)}")
            case ("repeat", int(number)) if self.sent:
                who, op, body, command_id = self.sent[number % len(self.sent)]
                self.world.send(who, op, command_id, **body)
            case ("received", str(who)):
                self.world.send(who, "message.received", message_ids=self.marks(who))
            case ("read", str(who)):
                self.world.send(who, "message.read", message_ids=self.marks(who))
            case ("delete", str(who)):
                self.send(who, "account.delete")
            case ("room", str(who), "post", str(room)):
                self.send(who, "room.post", room=room, text=f"{len(self.sent)}")
            case ("room", str(who), str(op), str(room)):
                self.send(who, f"room.{op}", room=room)
            case ("step", int(number)):
                waiting = self.world.waiting()
                if waiting:
                    self.world.step(waiting[number % len(waiting)])
            case ("crash", int(number)):
                self.world.crash(number)
            case ("snapshot", int(number)):
                self.world.snapshot(number)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(action, max_size=120))
def test_any_interleaving_keeps_the_invariants(actions: list[tuple[object, ...]]) -> None:
    play = Play()
    for one in actions:
        play.act(one)
    world = play.world
    world.settle()
    for number in range(world.partitions):
        assert world.rebuilt(number).state.same_as(world.homes[number].state)
    check_results(play)
    check_deliveries(play)


def check_results(play: Play) -> None:
    """One result for each command. Nothing is remembered for a sender whose account was deleted: each
    repeat gets an error result."""
    open_accounts = {
        name
        for home in play.world.homes.values()
        for name, account in home.state.accounts.items()
        if account.is_open
    }
    for who, _, _, command_id in play.sent:
        found = [event for event in play.world.inbox(who) if event.get("re") == command_id]
        if who in open_accounts:
            assert len(found) == 1
        else:
            codes = [event["body"].get("code") for event in found]
            assert len(codes) - codes.count("no-account") <= 1


def check_deliveries(play: Play) -> None:
    """Each message at most once, in its sender's order; all confirmed messages are there."""
    world = play.world
    order = {f"{who}/{command_id}": at for at, (who, _, _, command_id) in enumerate(play.sent)}
    for who in USERS:
        arrived: dict[str, list[int]] = defaultdict(list)
        for body in world.bodies(who, "message.new"):
            arrived[str(body["from"])].append(order[str(body["message_id"])])
        for places in arrived.values():
            assert places == sorted(set(places))
    for sender, op, body, command_id in play.sent:
        results = [event for event in world.inbox(sender) if event.get("re") == command_id]
        if op == "message.send" and results and results[0]["body"]["ok"]:
            peers = world.bodies(str(body["to"]), "message.new")
            assert f"{sender}/{command_id}" in {peer["message_id"] for peer in peers}


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(action, max_size=80), st.integers(0, 2))
def test_snapshot_plus_remaining_journal_equals_the_whole_journal(
    actions: list[tuple[object, ...]], number: int
) -> None:
    play = Play()
    for one in actions[: len(actions) // 2]:
        play.act(one)
    play.world.snapshot(number)
    for one in actions[len(actions) // 2 :]:
        play.act(one)
    play.world.settle()
    by_snapshot = play.world.rebuilt(number).state
    play.world.snapshots.clear()
    assert by_snapshot.same_as(play.world.rebuilt(number).state)
