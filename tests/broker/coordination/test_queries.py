from __future__ import annotations

import pytest
from tests.broker.coordination.rig import ALICE, Rig, create

from kafkaesque.broker.coordination.rules import queries
from kafkaesque.broker.coordination.rules.acl import READ_ONLY, Acl
from kafkaesque.broker.coordination.rules.commands import SetData
from kafkaesque.broker.coordination.rules.jute import JuteReader
from kafkaesque.broker.coordination.rules.queries import QueryAnswer, QueryContext, answer
from kafkaesque.broker.coordination.rules.requests import (
    AddWatch,
    Exists,
    GetAcl,
    GetAllChildrenNumber,
    GetChildren,
    GetData,
    GetEphemerals,
    Query,
    RemoveWatches,
    SetWatches,
)
from kafkaesque.broker.coordination.rules.vocabulary import (
    Code,
    CoordinationError,
    CreateMode,
    EventType,
    WatcherType,
)
from kafkaesque.broker.coordination.rules.watches import WatchTable


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.write(create("/a", b"data"))
    rig.write(create("/a/e", mode=CreateMode.EPHEMERAL))
    return rig


@pytest.fixture
def watches() -> WatchTable[str]:
    return WatchTable()


def ask(rig: Rig, watches: WatchTable[str], query: Query) -> QueryAnswer:
    return answer(QueryContext(rig.machine, watches, "me", ALICE, ()), query)


def test_reads_show_data_children_and_counts(rig: Rig, watches: WatchTable[str]) -> None:
    assert JuteReader(ask(rig, watches, GetData("/a", False)).body).buffer() == b"data"
    reader = JuteReader(ask(rig, watches, GetChildren("/a", False, True)).body)
    assert reader.vector(reader.string, 4) == ["e"]
    assert reader.remaining_bytes == 68
    assert ask(rig, watches, GetAllChildrenNumber("/")).body == (5).to_bytes(4, "big")
    reader = JuteReader(ask(rig, watches, GetEphemerals("/a")).body)
    assert reader.vector(reader.string, 4) == ["/a/e"]


def test_only_exists_sets_a_watch_on_a_missing_node(rig: Rig, watches: WatchTable[str]) -> None:
    for query in (GetData("/no", True), GetChildren("/no", True, False), Exists("/no", True)):
        with pytest.raises(CoordinationError) as caught:
            ask(rig, watches, query)
        assert caught.value.code is Code.NO_NODE
    assert watches.counts() == (1, 1)
    assert watches.has("/no", "me", WatcherType.DATA)


def test_reader_without_permission_gets_neither_data_nor_watch(
    rig: Rig, watches: WatchTable[str]
) -> None:
    rig.write(create("/locked", acl=(Acl(31, "digest", "joe:x"),)))
    for query in (GetData("/locked", True), Exists("/locked", True), GetAcl("/locked")):
        with pytest.raises(CoordinationError) as caught:
            ask(rig, watches, query)
        assert caught.value.code is Code.NO_AUTH
    assert watches.counts() == (0, 0)


def test_acl_of_a_read_only_node_is_readable(rig: Rig, watches: WatchTable[str]) -> None:
    rig.write(create("/open", acl=READ_ONLY))
    assert b"anyone" in ask(rig, watches, GetAcl("/open")).body


def test_set_watches_sends_missed_events_and_sets_the_rest(
    rig: Rig, watches: WatchTable[str]
) -> None:
    since = rig.machine.zxid
    rig.write(SetData("/a", b"new", -1))
    query = SetWatches(
        since, ["/a", "/gone", "/a/e"], ["/absent", "/a"], ["/", "/gone"], ["/p"], ["/r"]
    )
    answered = ask(rig, watches, query)
    assert [(event.type, event.path) for event in answered.missed] == [
        (EventType.NODE_DATA_CHANGED, "/a"),
        (EventType.NODE_DELETED, "/gone"),
        (EventType.NODE_CREATED, "/a"),
        (EventType.NODE_DELETED, "/gone"),
    ]
    for path, kind in (
        ("/a/e", WatcherType.DATA),
        ("/absent", WatcherType.DATA),
        ("/", WatcherType.CHILDREN),
        ("/p", WatcherType.PERSISTENT),
        ("/r", WatcherType.PERSISTENT_RECURSIVE),
    ):
        assert watches.has(path, "me", kind)


def test_watches_of_one_client_are_bounded(
    rig: Rig, watches: WatchTable[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "WATCHES_PER_CLIENT_MAX", 2)
    ask(rig, watches, GetData("/a", True))
    ask(rig, watches, GetChildren("/a", True, False))
    for query in (
        Exists("/a/e", True),
        AddWatch("/a", 0),
        SetWatches(0, ["/a/e"], [], [], [], []),
    ):
        with pytest.raises(CoordinationError) as caught:
            ask(rig, watches, query)
        assert caught.value.code is Code.QUOTA_EXCEEDED


@pytest.mark.parametrize("query", [AddWatch("/a", 9), RemoveWatches("/a", 0)])
def test_number_that_names_no_kind_of_watch_is_refused(
    rig: Rig, watches: WatchTable[str], query: Query
) -> None:
    with pytest.raises(CoordinationError) as caught:
        ask(rig, watches, query)
    assert caught.value.code is Code.MARSHALLING_ERROR
