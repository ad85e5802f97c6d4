from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.tasks.rules.queues import DueHeap, KeyedQueue

Item = tuple[bytes | None, int]


def queue_of(*items: Item) -> KeyedQueue[Item]:
    queue: KeyedQueue[Item] = KeyedQueue(lambda item: item[0])
    for item in items:
        queue.add(item)
    return queue


def test_a_busy_key_blocks_its_own_items_and_no_others() -> None:
    queue = queue_of((b"a", 1), (b"a", 2), (b"b", 1))
    first, second = queue.take(), queue.take()
    assert (first, second) == ((b"a", 1), (b"b", 1))
    assert queue.take() is None
    assert len(queue) == 1
    assert first is not None
    assert queue.is_busy(b"a")
    assert queue.blocked_by(b"a") == 1
    assert queue.release(first) == (b"a", 2)
    assert queue.take() == (b"a", 2)


def test_items_without_a_key_are_never_blocked() -> None:
    queue = queue_of((None, 1), (None, 2))
    assert [queue.take(), queue.take()] == [(None, 1), (None, 2)]


def test_removing_the_first_item_of_a_key_makes_the_next_one_ready() -> None:
    queue = queue_of((b"a", 1), (b"a", 2), (b"a", 3))
    removed, following = queue.remove_if(lambda item: item[1] in (1, 3))
    assert (removed, following) == ([(b"a", 3), (b"a", 1)], [(b"a", 2)])
    assert queue.take() == (b"a", 2)
    assert len(queue) == 0


def test_removing_items_does_not_free_a_key_that_is_taken() -> None:
    queue = queue_of((b"a", 1), (b"a", 2))
    taken = queue.take()
    assert taken is not None
    queue.remove_if(lambda item: True)
    queue.add((b"a", 3))
    assert queue.take() is None
    queue.release(taken)
    assert queue.take() == (b"a", 3)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=40), st.randoms())
def test_every_item_is_taken_once_and_each_key_in_order(
    keys: list[bytes | None], chance: object
) -> None:
    import random

    assert isinstance(chance, random.Random)
    queue = queue_of(*((key, number) for number, key in enumerate(keys)))
    running: list[Item] = []
    order: list[Item] = []
    while True:
        while (item := queue.take()) is not None:
            assert item[0] is None or item[0] not in {key for key, _ in running}
            running.append(item)
            order.append(item)
        if not running:
            break
        queue.release(running.pop(chance.randrange(len(running))))
    assert sorted(order, key=lambda item: item[1]) == [(key, n) for n, key in enumerate(keys)]
    for key in {key for key in keys if key is not None}:
        numbers = [number for own, number in order if own == key]
        assert numbers == sorted(numbers)


def test_due_items_are_ordered_by_time_and_then_by_arrival() -> None:
    heap: DueHeap[str] = DueHeap()
    for due_ms, item in ((30, "c"), (10, "a"), (20, "b1"), (20, "b2"), (40, "d")):
        heap.add(due_ms, item)
    assert heap.next_due_ms == 10
    assert heap.pop_due(30) == ["a", "b1", "b2", "c"]
    assert (len(heap), heap.next_due_ms) == (1, 40)


def test_a_removed_item_never_becomes_due() -> None:
    heap: DueHeap[int] = DueHeap()
    for number in range(10):
        heap.add(number, number)
    assert sorted(heap.remove_if(lambda item: item % 2 == 0)) == [0, 2, 4, 6, 8]
    assert heap.pop_due(100) == [1, 3, 5, 7, 9]
    assert heap.next_due_ms is None
