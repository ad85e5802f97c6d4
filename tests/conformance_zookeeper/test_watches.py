"""One-shot watches through kazoo: when and how often they fire, and their order relative to data."""

from __future__ import annotations

from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent
from tests.conformance_zookeeper.collected import Collected
from tests.conformance_zookeeper.conftest import NewClient


def types(collected: Collected[WatchedEvent]) -> list[tuple[str, str]]:
    return [(event.type, event.path) for event in collected.items]


def test_watch_of_data_fires_once(client: KazooClient, path: str) -> None:
    seen: Collected[WatchedEvent] = Collected()
    client.get(path, watch=seen)
    client.set(path, b"1")
    client.set(path, b"2")
    seen.wait(1)
    client.sync(path)
    assert types(seen) == [(EventType.CHANGED, path)]


def test_watch_of_a_missing_node_fires_at_its_creation(client: KazooClient, path: str) -> None:
    seen: Collected[WatchedEvent] = Collected()
    assert client.exists(path + "/new", watch=seen) is None
    client.create(path + "/new")
    seen.wait(1)
    assert types(seen) == [(EventType.CREATED, path + "/new")]


def test_watch_of_children_fires_for_them_and_not_for_data(client: KazooClient, path: str) -> None:
    seen: Collected[WatchedEvent] = Collected()
    client.get_children(path, watch=seen)
    client.set(path, b"no")
    client.create(path + "/a")
    client.create(path + "/b")
    seen.wait(1)
    client.sync(path)
    assert types(seen) == [(EventType.CHILD, path)]


def test_deletion_fires_both_kinds_once_each(client: KazooClient, path: str) -> None:
    data: Collected[WatchedEvent] = Collected()
    children: Collected[WatchedEvent] = Collected()
    parent: Collected[WatchedEvent] = Collected()
    client.create(path + "/a")
    client.get(path + "/a", watch=data)
    client.get_children(path + "/a", watch=children)
    client.get_children(path, watch=parent)
    client.delete(path + "/a")
    for collected in (data, children, parent):
        collected.wait(1)
    assert types(data) == types(children) == [(EventType.DELETED, path + "/a")]
    assert types(parent) == [(EventType.CHILD, path)]


def test_failed_write_fires_nothing(client: KazooClient, path: str) -> None:
    seen: Collected[WatchedEvent] = Collected()
    client.get(path, watch=seen)
    transaction = client.transaction()
    transaction.set_data(path, b"1")
    transaction.check(path, version=77)
    transaction.commit()
    client.sync(path)
    assert seen.items == []


def test_event_arrives_before_newer_data(new_client: NewClient, path: str) -> None:
    """The order of one connection's stream, as kazoo's single reader thread sees it."""
    reader, writer = new_client(), new_client()
    fired: Collected[WatchedEvent] = Collected()
    for number in range(50):
        shown, stat = reader.get(path, watch=fired)
        writer.set(path, str(number).encode())
        # The writer has its answer: the reader may still see old data, but never new data before its event.
        while (read := reader.get(path))[1].mzxid == stat.mzxid:
            assert read[0] == shown
        fired.wait(number + 1, timeout_s=5)
