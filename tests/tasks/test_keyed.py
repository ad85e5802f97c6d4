from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkaesque.tasks.rules.keyed import KeyedQueue

Item = tuple[bytes | None, int]


def queue_of(*items: Item) -> KeyedQueue[Item]:
    queue: KeyedQueue[Item] = KeyedQueue(lambda item: item[0])
    for item in items:
        queue.add(item)
    return queue


def test_a_busy_key_holds_back_its_own_and_no_other() -> None:
    queue = queue_of((b"a", 1), (b"a", 2), (b"b", 1))
    first, second = queue.take(), queue.take()
    assert (first, second) == ((b"a", 1), (b"b", 1))
    assert queue.take() is None
    assert len(queue) == 1
    assert first is not None
    assert queue.is_busy(b"a")
    assert queue.behind(b"a") == 1
    assert queue.release(first) == (b"a", 2)
    assert queue.take() == (b"a", 2)


def test_calls_without_key_wait_for_nobody() -> None:
    queue = queue_of((None, 1), (None, 2))
    assert [queue.take(), queue.take()] == [(None, 1), (None, 2)]


def test_dropping_the_head_lets_the_next_of_its_key_go() -> None:
    queue = queue_of((b"a", 1), (b"a", 2), (b"a", 3))
    dropped, following = queue.drop(lambda item: item[1] in (1, 3))
    assert (dropped, following) == ([(b"a", 3), (b"a", 1)], [(b"a", 2)])
    assert queue.take() == (b"a", 2)
    assert len(queue) == 0


def test_dropping_leaves_the_key_to_who_has_it() -> None:
    queue = queue_of((b"a", 1), (b"a", 2))
    taken = queue.take()
    assert taken is not None
    queue.drop(lambda item: True)
    queue.add((b"a", 3))
    assert queue.take() is None
    queue.release(taken)
    assert queue.take() == (b"a", 3)


@settings(deadline=None, max_examples=80)
@given(st.lists(st.sampled_from([b"a", b"b", b"c", None]), max_size=40), st.randoms())
def test_everything_runs_once_and_each_key_in_order(
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
