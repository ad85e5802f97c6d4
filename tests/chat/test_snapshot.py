from __future__ import annotations

import pytest
from tests.chat.world import World

from kafkaesque.chat.assignment import journal_end, journal_metadata
from kafkaesque.chat.rules.facts import EntryUnreadable, decode_entry
from kafkaesque.chat.rules.snapshot import (
    HEADER_KEY,
    VERSION,
    SnapshotUnreadable,
    decode_snapshot,
    encode_snapshot,
)
from kafkaesque.client.ports import CommitPoint
from kafkaesque.model.ids import Offset


def some_world() -> World:
    world = World(partitions=1)
    world.open("ann", "bob")
    world.send("ann", "message.send", to="bob", text="hello")
    world.send("ann", "room.create", room="kafka")
    world.settle()
    return world


def test_snapshot_holds_all_entities_and_the_next_journal_offset() -> None:
    home = some_world().homes[0]
    state, journal_next = decode_snapshot(encode_snapshot(home.state, home.journal_next))
    assert state.same_as(home.state)
    assert journal_next == home.journal_next > 0


def test_second_snapshot_holds_changed_and_removed_entities() -> None:
    world = some_world()
    first = dict(encode_snapshot(world.homes[0].state, Offset(1)))
    world.homes[0].state.dirty.clear()
    world.send("bob", "account.delete")
    world.settle()
    second = dict(encode_snapshot(world.homes[0].state, Offset(2)))
    assert second[b"conversation/bob/ann"] is None
    assert b"room/kafka/" not in second
    state, journal_next = decode_snapshot((first | second).items())
    assert state.same_as(world.homes[0].state)
    assert journal_next == 2


def test_no_snapshot_is_an_empty_state() -> None:
    state, journal_next = decode_snapshot([])
    assert (state.accounts, journal_next) == ({}, 0)


@pytest.mark.parametrize(
    "broken",
    [
        {HEADER_KEY: bytes([VERSION + 1]) + b"x"},
        {HEADER_KEY: b""},
        {HEADER_KEY: bytes([VERSION]) + b"\x80"},
        {b"account/ann/": b"\x01garbage"},
        {b"what is this": b"\x01\x80"},
        {b"account/ann/": bytes([VERSION + 1])},
    ],
)
def test_snapshot_of_a_later_build_or_damaged_is_not_used(broken: dict[bytes, bytes]) -> None:
    records = dict(encode_snapshot(some_world().homes[0].state, Offset(1)))
    with pytest.raises(SnapshotUnreadable):
        decode_snapshot((records | broken).items())


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"v":2,"facts":[]}', b'{"v":1,"facts":[{"fact":"of.tomorrow"}]}']
)
def test_journal_of_a_later_build_is_refused(data: bytes) -> None:
    with pytest.raises(EntryUnreadable):
        decode_entry(data)


def test_commit_metadata_records_how_far_the_journal_goes() -> None:
    assert journal_end(CommitPoint(Offset(1), journal_metadata(Offset(42)))) == 42
    for other in ("", "journal=", "journal=x", "something else"):
        assert journal_end(CommitPoint(Offset(1), other)) == 0
