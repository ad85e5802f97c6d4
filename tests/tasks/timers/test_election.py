from __future__ import annotations

import asyncio

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from kafkaesque.tasks.timers.election import Elected, ElectionLost, owner_of, share_of


@pytest.mark.parametrize(
    ("call", "error"), [("start", KazooTimeoutError), ("ensure_path", ConnectionLoss)]
)
def test_a_failed_join_raises_election_lost_and_closes_the_client(
    monkeypatch: pytest.MonkeyPatch, call: str, error: type[Exception]
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(KazooClient, "start", lambda *_, **__: None)
    monkeypatch.setattr(KazooClient, call, fail)
    closed: list[KazooClient] = []
    close = KazooClient.close

    def close_and_note(client: KazooClient) -> None:
        closed.append(client)
        close(client)

    monkeypatch.setattr(KazooClient, "close", close_and_note)

    async def test() -> None:
        with pytest.raises(ElectionLost):
            await Elected("127.0.0.1:1", "t1").open()

    asyncio.run(test())
    assert len(closed) == 1


MEMBERS = ["a", "b", "c"]


def test_every_partition_has_one_owner() -> None:
    shares = [share_of(member, MEMBERS, 64) for member in MEMBERS]
    assert frozenset.union(*shares) == frozenset(range(64))
    assert sum(map(len, shares)) == 64
    assert all(len(share) > 8 for share in shares)
    assert share_of("a", ["c", "a", "b", "a"], 64) == shares[0]


def test_a_leaving_member_moves_only_its_own_partitions() -> None:
    for partition in range(64):
        before = owner_of(partition, MEMBERS)
        if before != "c":
            assert owner_of(partition, ["a", "b"]) == before


def test_a_process_that_is_no_member_owns_nothing() -> None:
    assert share_of("x", MEMBERS, 8) == frozenset()
    assert owner_of(0, []) is None
