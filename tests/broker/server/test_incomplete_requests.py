"""The connections that are closed when incomplete requests take up too much memory."""

from __future__ import annotations

from kafkaesque.broker.server.rules.incomplete_requests import IncompleteRequests

KIB = 1024


def taken(requests: IncompleteRequests[str], limit_bytes: int, now: float) -> list[str]:
    return [name for name, _, _ in requests.take_costliest(limit_bytes, now)]


def test_total_is_the_sum_of_what_each_connection_holds() -> None:
    requests: IncompleteRequests[str] = IncompleteRequests()
    requests.note("a", 100, 1.0, is_new=False)
    requests.note("b", 10, 1.0, is_new=False)
    requests.note("a", 300, 2.0, is_new=False)
    assert requests.size_bytes == 310
    requests.forget("a")
    requests.forget("a")
    requests.forget("stranger")
    assert requests.size_bytes == 10


def test_large_stalled_requests_are_evicted_before_small_and_young_ones() -> None:
    requests: IncompleteRequests[str] = IncompleteRequests()
    requests.note("small and old", 1 * KIB, 0.0, is_new=False)
    requests.note("large and old", 500 * KIB, 0.0, is_new=False)
    requests.note("largest and young", 900 * KIB, 59.9, is_new=False)
    assert taken(requests, 1200 * KIB, 60.0) == ["large and old"]
    assert requests.size_bytes == 901 * KIB


def test_next_request_of_a_connection_is_young_again() -> None:
    requests: IncompleteRequests[str] = IncompleteRequests()
    requests.note("busy", 600, 0.0, is_new=False)
    requests.note("stuck", 500, 0.0, is_new=False)
    requests.note("busy", 600, 59.0, is_new=True)
    requests.note("stuck", 501, 59.0, is_new=False)  # a byte now and then is no new request
    assert taken(requests, 1000, 60.0) == ["stuck"]


def test_enough_go_to_leave_room_and_none_if_there_is_room() -> None:
    requests: IncompleteRequests[int] = IncompleteRequests()
    for number in range(100):
        requests.note(number, 10, 0.0, is_new=False)
    gone = list(requests.take_costliest(800, 5.0))
    assert requests.size_bytes == 700
    assert gone[0] == (0, 10, 5.0)
    assert len(gone) == 30
    assert list(requests.take_costliest(800, 6.0)) == []
