"""Create, read, change and delete through kazoo: kinds of nodes, versions, stats, transactions."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)
from tests.conformance_zookeeper.conftest import NewClient
from tests.waiting import eventually


def test_created_node_is_read_back_with_its_stat(client: KazooClient, path: str) -> None:
    node = path + "/a"
    assert client.create(node, b"x") == node
    data, stat = client.get(node)
    assert data == b"x"
    assert (stat.version, stat.cversion, stat.aversion) == (0, 0, 0)
    assert stat.czxid == stat.mzxid == stat.pzxid > 0
    assert stat.ctime == stat.mtime > 0
    assert (stat.dataLength, stat.numChildren, stat.ephemeralOwner) == (1, 0, 0)


def test_set_increments_version_and_moves_only_mzxid(client: KazooClient, path: str) -> None:
    before = client.exists(path)
    stat = client.set(path, b"changed")
    assert stat.version == before.version + 1
    assert stat.mzxid > before.mzxid
    assert (stat.czxid, stat.pzxid, stat.ctime) == (before.czxid, before.pzxid, before.ctime)
    assert client.get(path) == (b"changed", stat)


def test_stale_version_changes_nothing(client: KazooClient, path: str) -> None:
    client.set(path, b"1")
    for operation in (
        lambda: client.set(path, b"2", version=0),
        lambda: client.delete(path, version=7),
    ):
        with pytest.raises(BadVersionError):
            operation()
    assert client.get(path)[0] == b"1"


def test_parent_counts_creates_and_deletes_of_its_children(client: KazooClient, path: str) -> None:
    client.create(path + "/a")
    client.create(path + "/b")
    client.delete(path + "/a")
    stat = client.exists(path)
    assert (stat.cversion, stat.numChildren, stat.version) == (3, 1, 0)
    assert stat.pzxid > stat.mzxid
    assert client.get_children(path) == ["b"]


def test_errors_of_the_tree_have_their_names(client: KazooClient, path: str) -> None:
    client.create(path + "/child")
    client.create(path + "/short", ephemeral=True)
    cases = [
        (NodeExistsError, lambda: client.create(path)),
        (NoNodeError, lambda: client.create(path + "/no/such")),
        (NoNodeError, lambda: client.get(path + "/no")),
        (NoNodeError, lambda: client.set(path + "/no", b"")),
        (NoNodeError, lambda: client.delete(path + "/no")),
        (NoNodeError, lambda: client.get_children(path + "/no")),
        (NotEmptyError, lambda: client.delete(path)),
        (NoChildrenForEphemeralsError, lambda: client.create(path + "/short/x")),
        (BadArgumentsError, lambda: client.delete("/")),
        (BadArgumentsError, lambda: client.delete("/zookeeper")),
        (BadArgumentsError, lambda: client.create(path + "/\x01")),
    ]
    for error, operation in cases:
        with pytest.raises(error):
            operation()


def test_sequence_numbers_count_all_creates_of_the_parent(client: KazooClient, path: str) -> None:
    assert client.create(path + "/s-", sequence=True) == path + "/s-0000000000"
    client.create(path + "/other")
    assert client.create(path + "/s-", sequence=True) == path + "/s-0000000002"
    client.delete(path + "/s-0000000002")
    assert client.create(path + "/s-", sequence=True) == path + "/s-0000000003"
    assert client.create(path + "/", sequence=True) == path + "/0000000004"


def test_ephemeral_node_is_removed_with_its_session(new_client: NewClient, path: str) -> None:
    owner, other = new_client(), new_client()
    owner.create(path + "/e", b"here", ephemeral=True)
    assert other.exists(path + "/e").ephemeralOwner == owner.client_id[0]
    owner.stop()
    assert other.exists(path + "/e") is None


def test_ephemeral_node_outlives_a_broken_connection(new_client: NewClient, path: str) -> None:
    owner, other = new_client(), new_client()
    owner.create(path + "/e", ephemeral=True)
    session = owner.client_id
    owner._connection._socket.shutdown(2)
    eventually(lambda: owner.connected and owner.retry(owner.exists, path + "/e"))
    assert owner.client_id == session
    assert other.exists(path + "/e").ephemeralOwner == session[0]


def test_transaction_is_all_or_nothing(client: KazooClient, path: str) -> None:
    good = client.transaction()
    good.check(path, version=0)
    good.create(path + "/a", b"1")
    good.create(path + "/a/s-", sequence=True)
    good.set_data(path + "/a", b"2")
    good.delete(path + "/a/s-0000000000")
    checked, created, sequence, changed, deleted = good.commit()
    assert (checked, created, sequence, deleted) == (
        True,
        path + "/a",
        path + "/a/s-0000000000",
        True,
    )
    assert changed.version == 1
    before = client.exists(path)

    bad = client.transaction()
    bad.create(path + "/b")
    bad.set_data(path, b"never")
    bad.delete(path + "/a")
    bad.check(path, version=9)
    bad.create(path + "/c")
    results = bad.commit()
    kinds = [type(result) for result in results]
    assert kinds == [
        RolledBackError,
        RolledBackError,
        RolledBackError,
        BadVersionError,
        RuntimeInconsistency,
    ]
    assert client.exists(path) == before
    assert client.get(path + "/a")[0] == b"2"
    assert client.create(path + "/s-", sequence=True) == path + "/s-0000000001"


def test_changes_of_a_transaction_share_one_zxid(client: KazooClient, path: str) -> None:
    transaction = client.transaction()
    transaction.create(path + "/a")
    transaction.create(path + "/b")
    transaction.commit()
    assert client.exists(path + "/a").czxid == client.exists(path + "/b").czxid


def test_chroot_client_sees_its_own_root(new_client: NewClient, path: str) -> None:
    inside, outside = new_client(root=path), new_client()
    assert inside.create("/x/y", b"1", makepath=True) == "/x/y"
    assert outside.get(path + "/x/y")[0] == b"1"
    assert inside.get_children("/") == ["x"]
    assert inside.create("/x/s-", sequence=True, ephemeral=True) == "/x/s-0000000001"


def test_large_data_is_kept_and_too_large_data_drops_the_connection(
    new_client: NewClient, path: str
) -> None:
    client = new_client()
    client.set(path, b"x" * 1_000_000)
    assert len(client.get(path)[0]) == 1_000_000
    with pytest.raises(Exception, match=r"(?i)loss|closed|broken|reset|^$"):
        client.set(path, b"x" * 1_100_000)
    eventually(lambda: client.connected and client.retry(client.exists, path))
    assert client.get(path)[1].dataLength == 1_000_000


def test_pipelined_writes_are_answered_in_order(client: KazooClient, path: str) -> None:
    created = [client.create_async(path + "/q-", sequence=True) for _ in range(200)]
    names = [result.get(timeout=15) for result in created]
    assert names == [f"{path}/q-{number:010d}" for number in range(200)]
    read = client.get_children_async(path).get(timeout=15)
    assert len(read) == 200


def test_read_after_a_write_sees_it_without_waiting(client: KazooClient, path: str) -> None:
    pairs = [
        (client.set_async(path, str(number).encode()), client.get_async(path))
        for number in range(100)
    ]
    for number, (_, read) in enumerate(pairs):
        assert read.get(timeout=15)[0] == str(number).encode()


def test_sync_then_read_sees_what_another_client_wrote(new_client: NewClient, path: str) -> None:
    writer, reader = new_client(), new_client()
    for number in range(20):
        writer.set(path, str(number).encode())
        assert reader.sync(path) == path
        assert reader.get(path)[0] == str(number).encode()
