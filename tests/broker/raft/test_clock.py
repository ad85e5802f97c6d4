from __future__ import annotations

from kafkaesque.broker.raft.clock import ElectionClock


def ticks_until_timeout(clock: ElectionClock) -> int:
    count = 1
    while not clock.tick():
        count += 1
    return count


def test_timeout_is_the_base_plus_jitter() -> None:
    assert ticks_until_timeout(ElectionClock(10, lambda bound: 0)) == 10
    assert ticks_until_timeout(ElectionClock(10, lambda bound: bound - 1)) == 19


def test_leader_is_heard_for_one_base_timeout() -> None:
    clock = ElectionClock(10, lambda bound: 5)
    assert not clock.hears_leader
    clock.heard_leader()
    for _ in range(10):
        assert clock.hears_leader
        clock.tick()
    assert not clock.hears_leader


def test_short_timeout_after_a_lost_leader_ends_with_its_return() -> None:
    """Otherwise a leader that came back would be challenged after every heartbeat."""
    clock = ElectionClock(10, lambda bound: 0)
    clock.heard_leader()
    clock.shorten_timeout()
    assert clock.timeout_ticks < 10
    clock.heard_leader()
    assert ticks_until_timeout(clock) == 10


def test_vote_given_does_not_shorten_what_the_leader_was_promised() -> None:
    clock = ElectionClock(10, lambda bound: 0)
    clock.heard_leader()
    for _ in range(4):
        clock.tick()
    clock.restart()
    assert (clock.elapsed_ticks, clock.since_leader_ticks) == (0, 4)
