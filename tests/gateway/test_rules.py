"""The small rules: rate limits, routes, targets, draining, pending replies, users, stages."""

from __future__ import annotations

import pytest

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.messages import Ack, Hello, Resume, Send
from kafkaesque.events.gateway import GatewayNode, Reply
from kafkaesque.gateway.backend import PendingReplies
from kafkaesque.gateway.rules.draining import waves
from kafkaesque.gateway.rules.routes import BadRoutes, Routes, parse_routes
from kafkaesque.gateway.rules.session import ALLOWED, SessionStage, check_allowed
from kafkaesque.gateway.rules.targets import free_slot, targets_of
from kafkaesque.gateway.rules.users import Users
from kafkaesque.model.ids import TimestampMs


def test_routes_choose_by_version_and_an_unknown_one_has_none() -> None:
    routes = parse_routes(b'{"v1": "gw.cmd.v1", "v2": "two", "default": "v2"}')
    assert (routes.topic_of(""), routes.topic_of("v1"), routes.topic_of("v3")) == (
        "two", "gw.cmd.v1", None,
    )  # fmt: skip
    assert Routes().topic_of("") == Routes().topic_of("v1") == "gw.cmd.v1"


@pytest.mark.parametrize("data", [b"", b"[]", b'{"v1": 5}', b'{"v1": "t"}', b'{"default": "v1"}'])
def test_routes_that_cannot_be_used_are_refused(data: bytes) -> None:
    with pytest.raises(BadRoutes):
        parse_routes(data)


def test_targets_are_deterministic_and_move_only_with_their_gateway() -> None:
    nodes = {f"gw-{n}": GatewayNode(f"10.0.0.{n}:7000", n) for n in range(5)}
    before = {partition: targets_of(partition, nodes) for partition in range(32)}
    assert len({targets[0] for targets in before.values()}) > 1
    gone = nodes["gw-0"].tcp
    left = {name: node for name, node in nodes.items() if name != "gw-0"}
    for partition, targets in before.items():
        if targets[0] != gone:
            assert targets_of(partition, left)[0] == targets[0]
    draining = {**nodes, "gw-1": GatewayNode(nodes["gw-1"].tcp, 1, draining=True)}
    for partition in range(32):
        assert nodes["gw-1"].tcp not in targets_of(partition, draining)
        assert gone not in targets_of(partition, nodes, without=["gw-0"])


def test_a_gateway_gets_its_wanted_slot_or_the_next_free_one() -> None:
    taken = [GatewayNode("a", 3), GatewayNode("b", 0)]
    assert free_slot(taken, 1, 4) == 1
    assert free_slot(taken, 3, 4) == 1
    assert free_slot([GatewayNode("a", n) for n in range(4)], 2, 4) == 2


def test_a_drain_sends_each_client_away_once_in_batches() -> None:
    clients = list(range(1050))
    found = list(waves(clients, 500, 250, lambda: 0.5))
    assert [len(wave.clients) for wave in found] == [500, 500, 50]
    assert [wave.wait_ms for wave in found] == [250, 250, 0]
    assert [client for wave in found for client, _ in wave.clients] == clients
    assert {after for wave in found for _, after in wave.clients} == {125}
    assert list(waves([], 500, 250, lambda: 0.5)) == []


def test_a_request_gets_one_reply_or_expires() -> None:
    replies: list[Reply | None] = []
    pending = PendingReplies("gw", 10.0, 2)
    first, second = pending.add(replies.append, 0.0), pending.add(replies.append, 1.0)
    assert first is not None
    assert second is not None
    assert pending.add(replies.append, 2.0) is None
    assert pending.resolve(first, Reply(ok=True))
    assert not pending.resolve(first, Reply(ok=True))
    assert pending.expire(10.5) == 0
    assert pending.expire(11.0) == 1
    assert replies == [Reply(ok=True), None]
    third = pending.add(replies.append, 20.0)
    assert third not in (first, second, None)
    pending.discard(third or "")
    assert pending.expire(100.0) == 0
    assert len(pending) == 0


def test_user_is_known_while_connected_and_shares_its_rate() -> None:
    users = Users(1.0, 1, 2)
    one = users.connect("alice", 0.0, TimestampMs(5))
    two = users.connect("alice", 0.0, TimestampMs(9))
    assert one is two is users.get("alice")
    assert one is not None
    assert (one.connections, one.since_ms) == (2, 5)
    assert users.connect("alice", 0.0, TimestampMs(9)) is None
    assert not users.disconnect(one)
    assert users.disconnect(one)
    assert users.get("alice") is None
    assert len(users) == 0


def test_only_messages_of_the_table_are_allowed() -> None:
    check_allowed(SessionStage.NEW, Hello())
    check_allowed(SessionStage.LIVE, Resume())
    for stage, message in ((SessionStage.NEW, Send("a", "b")), (SessionStage.RESUMING, Resume()),
                           (SessionStage.LIVE, Hello()), (SessionStage.LIVE, Ack("x"))):  # fmt: skip
        with pytest.raises(Violation) as refused:
            check_allowed(stage, message)
        assert refused.value.code is CloseCode.BAD_STATE
    assert set(ALLOWED) == set(SessionStage)
