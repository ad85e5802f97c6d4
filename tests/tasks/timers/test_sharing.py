from __future__ import annotations

from kafkaesque.tasks.timers.sharing import owner_of, share_of

MEMBERS = ["a", "b", "c"]


def test_every_partition_has_one_owner_whoever_is_asked() -> None:
    shares = [share_of(member, MEMBERS, 64) for member in MEMBERS]
    assert frozenset.union(*shares) == frozenset(range(64))
    assert sum(map(len, shares)) == 64
    assert all(len(share) > 8 for share in shares)
    assert share_of("a", ["c", "a", "b", "a"], 64) == shares[0]


def test_who_goes_moves_no_partition_but_its_own() -> None:
    for partition in range(64):
        before = owner_of(partition, MEMBERS)
        if before != "c":
            assert owner_of(partition, ["a", "b"]) == before


def test_a_stranger_owns_nothing() -> None:
    assert share_of("x", MEMBERS, 8) == frozenset()
    assert owner_of(0, []) is None
