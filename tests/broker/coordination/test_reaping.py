from __future__ import annotations

from tests.broker.coordination.rig import Rig, create

from kafkaesque.broker.coordination.rules.acl import OPEN
from kafkaesque.broker.coordination.rules.commands import Create, Delete
from kafkaesque.broker.coordination.rules.machine import REAPED_AT_ONCE_MAX, find_reapable
from kafkaesque.broker.coordination.rules.vocabulary import CreateMode, OpCode


def with_ttl(path: str, ttl_ms: int) -> Create:
    mode = CreateMode.PERSISTENT_WITH_TTL
    return Create(path, b"", OPEN, int(mode), int(OpCode.CREATE_TTL), ttl_ms)


def found(rig: Rig, now_ms: int) -> list[str]:
    return [reap.path for reap in find_reapable(rig.machine.tree, now_ms)]


def test_container_is_found_once_it_was_used_and_is_empty() -> None:
    rig = Rig()
    rig.write(create("/box", mode=CreateMode.CONTAINER))
    assert found(rig, 10**12) == []
    rig.write(create("/box/kid"))
    assert found(rig, 10**12) == []
    rig.write(Delete("/box/kid", -1))
    assert found(rig, 0) == ["/box"]


def test_node_with_a_ttl_is_found_when_it_ran_out_since_the_last_change() -> None:
    rig = Rig()
    rig.now_ms = 5000
    rig.write(with_ttl("/t", 100))
    assert found(rig, 5100) == []
    assert found(rig, 5101) == ["/t"]
    rig.write(create("/t/kid"))
    assert found(rig, 10**9) == []


def test_great_cleaning_is_done_in_parts() -> None:
    rig = Rig()
    for number in range(REAPED_AT_ONCE_MAX + 10):
        rig.write(with_ttl(f"/t{number}", 1))
    assert len(found(rig, 10**9)) == REAPED_AT_ONCE_MAX
