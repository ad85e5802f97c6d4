"""Every recipe of kazoo, each with its main guarantee."""

from __future__ import annotations

import contextlib
import datetime
import threading
import time

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionClosedError, SessionExpiredError
from kazoo.protocol.states import EventType
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.partitioner import PartitionState
from tests.conformance_zookeeper.collected import Collected
from tests.conformance_zookeeper.conftest import NewClient
from tests.waiting import eventually


def in_thread(target: object, *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
    thread.start()
    return thread


def test_election_leads_one_at_a_time_and_hands_over(new_client: NewClient, path: str) -> None:
    led: Collected[str] = Collected()
    let_go = {name: threading.Event() for name in "ab"}
    clients = {name: new_client() for name in "ab"}

    def lead(name: str) -> None:
        led(name)
        let_go[name].wait(15)

    threads = []
    for name in "ab":
        election = clients[name].Election(path + "/election", name)
        threads.append(in_thread(election.run, lead, name))
        if name == "a":
            led.wait(1)
    contenders = clients["a"].Election(path + "/election").contenders
    eventually(lambda: contenders() == ["a", "b"])
    assert led.items == ["a"]
    let_go["a"].set()
    assert led.wait(2) == ["a", "b"]
    let_go["b"].set()
    for thread in threads:
        thread.join(15)
        assert not thread.is_alive()


def test_election_survives_the_death_of_the_leader(new_client: NewClient, path: str) -> None:
    first, second = new_client(timeout=1.0), new_client()
    led: Collected[str] = Collected()
    never = threading.Event()

    def lead_until_cut_off() -> None:
        with contextlib.suppress(ConnectionClosedError, SessionExpiredError):
            first.Election(path, "first").run(lambda: (led("first"), never.wait(10)))

    in_thread(lead_until_cut_off)
    led.wait(1)
    in_thread(second.Election(path, "second").run, lambda: led("second"))
    eventually(lambda: len(second.get_children(path)) == 2)
    first.stop()  # without notifying its recipes
    assert led.wait(2) == ["first", "second"]
    never.set()
    second.stop()


def test_lock_excludes_and_is_granted_in_order(new_client: NewClient, path: str) -> None:
    holders: list[str] = []
    most = []
    order: Collected[str] = Collected()
    clients = [new_client() for _ in range(4)]
    first = clients[0].Lock(path + "/lock", "first")
    assert first.acquire(timeout=10)

    def work(client: KazooClient, name: str) -> None:
        with client.Lock(path + "/lock", name):
            holders.append(name)
            most.append(len(holders))
            order(name)
            holders.remove(name)

    for number, client in enumerate(clients[1:]):
        in_thread(work, client, str(number))
        eventually(lambda n=number: len(first.contenders()) == n + 2)
    assert order.items == []
    first.release()
    assert order.wait(3) == ["0", "1", "2"]
    assert max(most) == 1


def test_held_lock_cannot_be_acquired_by_another_client(new_client: NewClient, path: str) -> None:
    one, other = new_client(), new_client()
    lock = one.Lock(path + "/lock", "one")
    assert lock.acquire()
    assert not other.Lock(path + "/lock", "other").acquire(blocking=False)
    lock.release()
    assert other.Lock(path + "/lock", "other").acquire(timeout=10)


def test_read_lock_is_shared_and_write_lock_is_not(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    read_one, read_two = one.ReadLock(path, "r1"), two.ReadLock(path, "r2")
    assert read_one.acquire(timeout=10)
    assert read_two.acquire(timeout=10)
    write = two.WriteLock(path, "w")
    assert not write.acquire(blocking=False)
    read_one.release()
    read_two.release()
    assert write.acquire(timeout=10)
    assert not one.ReadLock(path, "r3").acquire(blocking=False)
    write.release()


def test_semaphore_has_the_given_number_of_leases(new_client: NewClient, path: str) -> None:
    clients = [new_client() for _ in range(3)]
    semaphores = [client.Semaphore(path + "/sem", max_leases=2) for client in clients]
    assert semaphores[0].acquire(timeout=10)
    assert semaphores[1].acquire(timeout=10)
    assert not semaphores[2].acquire(blocking=False)
    semaphores[0].release()
    assert semaphores[2].acquire(timeout=10)
    assert len(semaphores[1].lease_holders()) == 2


def test_lease_is_held_by_one_until_it_ends(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    hour = datetime.timedelta(hours=1)
    assert one.NonBlockingLease(path + "/lease", hour, identifier="one")
    assert not two.NonBlockingLease(path + "/lease", hour, identifier="two")
    assert one.NonBlockingLease(path + "/lease", hour, identifier="one")
    multi = [
        client.MultiNonBlockingLease(2, path + "/leases", hour, identifier=str(number))
        for number, client in enumerate((one, two, one))
    ]
    assert [bool(lease) for lease in multi] == [True, True, False]


def test_barrier_holds_until_it_is_removed(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    barrier = one.Barrier(path + "/barrier")
    barrier.create()
    assert not two.Barrier(path + "/barrier").wait(timeout=0.1)
    passed: Collected[bool] = Collected()
    in_thread(lambda: passed(two.Barrier(path + "/barrier").wait(15)))
    barrier.remove()
    assert passed.wait(1) == [True]


def test_double_barrier_starts_and_ends_together(new_client: NewClient, path: str) -> None:
    steps: Collected[str] = Collected()
    go = threading.Event()

    def take_part(client: KazooClient, name: str) -> None:
        barrier = client.DoubleBarrier(path + "/double", 3, identifier=name)
        barrier.enter()
        steps("in")
        go.wait(15)
        barrier.leave()
        steps("out")

    clients = [new_client() for _ in range(3)]
    in_thread(take_part, clients[0], "0")
    in_thread(take_part, clients[1], "1")
    clients[2].ensure_path(path + "/double")
    eventually(lambda: len(clients[2].get_children(path + "/double")) == 2)
    assert steps.items == []
    in_thread(take_part, clients[2], "2")
    assert steps.wait(3) == ["in"] * 3
    go.set()
    assert steps.wait(6)[3:] == ["out"] * 3


def test_party_lists_its_members(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    party, same = one.Party(path + "/party", "one"), two.Party(path + "/party", "two")
    party.join()
    same.join()
    assert set(party) == {"one", "two"}
    two.stop()
    eventually(lambda: list(party) == ["one"])
    shallow = one.ShallowParty(path + "/shallow", "one")
    shallow.join()
    assert list(shallow) == ["one"]
    shallow.leave()
    assert len(shallow) == 0


def test_queue_gives_each_item_once_and_in_order(new_client: NewClient, path: str) -> None:
    queue = new_client().Queue(path + "/queue")
    for item in (b"a", b"b", b"c"):
        queue.put(item)
    queue.put(b"first", priority=1)
    assert len(queue) == 4
    assert [queue.get() for _ in range(5)] == [b"first", b"a", b"b", b"c", None]


def test_locking_queue_keeps_an_item_until_it_is_consumed(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    queue, other = one.LockingQueue(path + "/locking"), two.LockingQueue(path + "/locking")
    queue.put_all([b"a", b"b"])
    assert queue.get(timeout=10) == b"a"
    assert other.get(timeout=10) == b"b"
    assert queue.consume()
    two.stop()
    assert queue.get(timeout=10) == b"b"
    assert queue.consume()
    assert queue.get(timeout=0.1) is None


def test_counter_loses_no_increment(new_client: NewClient, path: str) -> None:
    clients = [new_client() for _ in range(4)]

    def count(client: KazooClient) -> None:
        counter = client.Counter(path + "/counter")
        for _ in range(10):
            counter += 1

    threads = [in_thread(count, client) for client in clients]
    for thread in threads:
        thread.join(30)
    assert clients[0].Counter(path + "/counter").value == 40


def test_partitioner_divides_and_rebalances(new_client: NewClient, path: str) -> None:
    clients = [new_client() for _ in range(2)]
    partitioners = [
        client.SetPartitioner(
            path + "/partition",
            set=range(4),
            identifier=str(number),
            time_boundary=0.2,
            max_reaction_time=0.1,
        )
        for number, client in enumerate(clients)
    ]

    def settled(expected: int) -> bool:
        for partitioner in partitioners:
            if partitioner.state == PartitionState.RELEASE:
                partitioner.release_set()
        live = [p for p in partitioners if p.state == PartitionState.ACQUIRED]
        return len(live) == expected and {n for p in live for n in p} == set(range(4))

    eventually(lambda: settled(2))
    assert all(len(list(partitioner)) == 2 for partitioner in partitioners)
    partitioners.pop().finish()
    clients[1].stop()
    eventually(lambda: settled(1))
    partitioners[0].finish()


def test_data_watch_sees_creation_changes_and_deletion(client: KazooClient, path: str) -> None:
    seen: Collected[object] = Collected()
    client.DataWatch(path + "/d", lambda data, stat, event: seen((data, event and event.type)))
    seen.wait(1)
    client.create(path + "/d", b"1")
    seen.wait(2)
    client.set(path + "/d", b"2")
    seen.wait(3)
    client.delete(path + "/d")
    assert seen.wait(4) == [
        (None, None),
        (b"1", EventType.CREATED),
        (b"2", EventType.CHANGED),
        (None, EventType.DELETED),
    ]


def test_children_watch_sees_creations_and_deletions(new_client: NewClient, path: str) -> None:
    one, two = new_client(), new_client()
    seen: Collected[list[str]] = Collected()
    one.ChildrenWatch(path, lambda children: seen(sorted(children)))
    seen.wait(1)
    two.create(path + "/a")
    seen.wait(2)
    two.create(path + "/b", ephemeral=True)
    seen.wait(3)
    two.stop()
    assert seen.wait(4) == [[], ["a"], ["a", "b"], ["a"]]


def test_patient_children_watch_waits_for_quiet(client: KazooClient, path: str) -> None:
    from kazoo.recipe.watchers import PatientChildrenWatch

    result = PatientChildrenWatch(client, path, time_boundary=0.3).start()
    client.create(path + "/a")
    client.create(path + "/b")
    children, _changed = result.get(timeout=15)
    assert sorted(children) == ["a", "b"]


def test_tree_cache_follows_the_whole_tree(new_client: NewClient, path: str) -> None:
    reader, writer = new_client(), new_client()
    writer.create(path + "/a/b", b"1", makepath=True)
    cache = TreeCache(reader, path)
    events: Collected[int] = Collected()
    cache.listen(lambda event: events(event.event_type))
    cache.start()
    eventually(lambda: TreeEvent.INITIALIZED in events.items)
    assert cache.get_data(path + "/a/b").data == b"1"
    writer.set(path + "/a/b", b"2")
    writer.create(path + "/a/c", b"new")
    eventually(lambda: (found := cache.get_data(path + "/a/b")) and found.data == b"2")
    eventually(lambda: cache.get_children(path + "/a") == {"b", "c"})
    writer.delete(path + "/a", recursive=True)
    eventually(lambda: cache.get_data(path + "/a") is None)
    cache.close()


def test_session_listener_is_notified_of_an_expiry(new_client: NewClient, path: str) -> None:
    """A client that stops without pings loses its ephemerals after the timeout, not before."""
    other = new_client()
    dying = new_client(timeout=1.0)
    dying.create(path + "/alive", ephemeral=True)
    gone: Collected[float] = Collected()
    other.exists(path + "/alive", watch=lambda event: gone(time.monotonic()))
    dying._connection._socket.shutdown(2)
    dying._call = None  # it cannot reconnect
    dying._stopped.set()
    started = time.monotonic()
    (at,) = gone.wait(1)
    # Its last ping was at most one interval (a third of the timeout) before the connection broke.
    assert at - started > 0.3
