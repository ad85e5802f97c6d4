from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafkaesque.broker.coordination.rules.acl import OPEN
from kafkaesque.broker.coordination.rules.operations import NodeEvent
from kafkaesque.broker.coordination.rules.vocabulary import AddWatchMode, EventType, WatcherType
from kafkaesque.broker.coordination.rules.watches import WatchTable

CREATED, DELETED = EventType.NODE_CREATED, EventType.NODE_DELETED
CHANGED, CHILDREN = EventType.NODE_DATA_CHANGED, EventType.NODE_CHILDREN_CHANGED


def happened(kind: EventType, path: str) -> NodeEvent:
    return NodeEvent(kind, path, 1, OPEN)


def triggered(
    table: WatchTable[str], *events: tuple[EventType, str]
) -> list[tuple[str, EventType, str]]:
    return [
        (watcher, event.type, event.path)
        for watcher, event in table.trigger([happened(*event) for event in events])
    ]


def test_one_shot_watch_of_data_fires_once_for_data_only() -> None:
    table: WatchTable[str] = WatchTable()
    table.watch_data("/a", "w")
    assert triggered(table, (CHILDREN, "/a"), (CHANGED, "/b")) == []
    assert triggered(table, (CHANGED, "/a"), (CHANGED, "/a")) == [("w", CHANGED, "/a")]
    assert table.counts() == (0, 0)


def test_watcher_of_both_aspects_hears_of_a_deletion_once() -> None:
    table: WatchTable[str] = WatchTable()
    table.watch_data("/a", "w")
    table.watch_children("/a", "w")
    table.watch_children("/a", "v")
    assert triggered(table, (DELETED, "/a")) == [("w", DELETED, "/a"), ("v", DELETED, "/a")]
    assert table.counts() == (0, 0)


def test_persistent_watch_stays_and_is_not_recursive() -> None:
    table: WatchTable[str] = WatchTable()
    table.add("/a", "w", AddWatchMode.PERSISTENT)
    for _ in range(2):
        assert triggered(table, (CHANGED, "/a"), (CHILDREN, "/a"), (CHANGED, "/a/b")) == [
            ("w", CHANGED, "/a"),
            ("w", CHILDREN, "/a"),
        ]


def test_recursive_watch_hears_of_all_below_and_never_of_lists() -> None:
    table: WatchTable[str] = WatchTable()
    table.add("/", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    assert triggered(table, (CREATED, "/a/b"), (CHILDREN, "/a"), (CHANGED, "/")) == [
        ("w", CREATED, "/a/b"),
        ("w", CHANGED, "/"),
    ]


def test_one_shot_beside_a_persistent_one_gives_one_event_and_leaves_the_other() -> None:
    table: WatchTable[str] = WatchTable()
    table.add("/a", "w", AddWatchMode.PERSISTENT)
    table.add("/a", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    table.watch_data("/a", "w")
    assert triggered(table, (CHANGED, "/a")) == [("w", CHANGED, "/a")]
    assert not table.has("/a", "w", WatcherType.DATA)
    assert table.has("/a", "w", WatcherType.PERSISTENT)
    assert triggered(table, (CHANGED, "/a")) == [("w", CHANGED, "/a")]


def test_removal_is_by_kind_and_says_whether_there_was_one() -> None:
    table: WatchTable[str] = WatchTable()
    table.watch_children("/a", "w")
    table.add("/a", "w", AddWatchMode.PERSISTENT_RECURSIVE)
    assert not table.remove("/a", "w", WatcherType.DATA)
    assert table.remove("/a", "w", WatcherType.CHILDREN)
    assert not table.remove("/a", "w", WatcherType.CHILDREN)
    assert table.remove("/a", "w", WatcherType.ANY)
    assert not table.has("/a", "w", WatcherType.ANY)


PATHS = st.sampled_from(["/", "/a", "/a/b", "/a/c", "/d"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["data", "child", "persistent", "recursive", "remove", "gone", "event"]),
        PATHS,
        st.sampled_from(["v", "w"]),
    ),
    max_size=30,
)


@given(STEPS)
def test_table_forgets_all_that_its_watchers_leave(steps: list[tuple[str, str, str]]) -> None:
    table: WatchTable[str] = WatchTable()
    for step, path, watcher in steps:
        match step:
            case "data":
                table.watch_data(path, watcher)
            case "child":
                table.watch_children(path, watcher)
            case "persistent":
                table.add(path, watcher, AddWatchMode.PERSISTENT)
            case "recursive":
                table.add(path, watcher, AddWatchMode.PERSISTENT_RECURSIVE)
            case "remove":
                table.remove(path, watcher, WatcherType.ANY)
            case "gone":
                table.remove_all(watcher)
            case "event":
                table.trigger([happened(DELETED, path)])
        assert table.counts().watches == table.count_of("v") + table.count_of("w")
    table.remove_all("v")
    table.remove_all("w")
    assert table.counts() == (0, 0)
    assert triggered(table, (CREATED, "/a/b")) == []
    assert table._data.recursive_count == 0
