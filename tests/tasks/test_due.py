from __future__ import annotations

from kafkaesque.tasks.rules.due import DueHeap


def test_what_is_due_comes_by_time_and_equals_in_order_of_arrival() -> None:
    heap: DueHeap[str] = DueHeap()
    for due_ms, item in ((30, "c"), (10, "a"), (20, "b1"), (20, "b2"), (40, "d")):
        heap.add(due_ms, item)
    assert heap.next_due_ms == 10
    assert heap.take(30) == ["a", "b1", "b2", "c"]
    assert (len(heap), heap.next_due_ms) == (1, 40)


def test_what_is_dropped_never_comes() -> None:
    heap: DueHeap[int] = DueHeap()
    for number in range(10):
        heap.add(number, number)
    assert sorted(heap.drop(lambda item: item % 2 == 0)) == [0, 2, 4, 6, 8]
    assert heap.take(100) == [1, 3, 5, 7, 9]
    assert heap.next_due_ms is None
