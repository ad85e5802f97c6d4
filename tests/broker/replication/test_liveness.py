"""When the other end of a link counts as lost, and how long it counts this end as alive."""

from __future__ import annotations

import pytest

from kafkaesque.broker.replication.rules.liveness import Liveness
from kafkaesque.model.errors import ProtocolError

START = 1000.0


def liveness() -> Liveness:
    found = Liveness(
        START,
        silence_seconds=1.0,
        pulse_seconds=0.1,
        margin_seconds=0.05,
        heartbeat_age_max_seconds=0.35,
    )
    found.promised(2.0)
    return found


def test_silence_is_detected_after_its_time_and_one_pulse() -> None:
    link = liveness()
    verdicts = [link.pulse(START + n * 0.1) for n in range(1, 13)]

    assert verdicts.index(True) == 10


def test_anything_received_restarts_the_count() -> None:
    link = liveness()
    for n in range(1, 11):
        link.pulse(START + n * 0.1)
    link.heard(START + 1.05)

    assert not any(link.pulse(START + 1.0 + n * 0.1) for n in range(1, 11))
    assert link.pulse(START + 2.1)


def test_stall_of_this_node_makes_no_peer_silent() -> None:
    """One pulse follows the stall; what arrived meanwhile is read before the next one."""
    link = liveness()

    assert not link.pulse(START + 60.0)
    link.heard(START + 60.0)
    assert not any(link.pulse(START + 60.0 + n * 0.1) for n in range(1, 11))


def test_pulses_that_come_too_fast_do_not_shorten_the_time() -> None:
    link = liveness()

    assert not any(link.pulse(START + 0.9) for _ in range(100))
    assert link.pulse(START + 1.0)


def test_lease_counts_from_the_ping_and_lasts_as_the_peer_announced() -> None:
    link = liveness()
    stamp = link.ping(START + 10.0)
    link.pong(stamp, START + 10.5)

    assert link.lease_until == pytest.approx(START + 10.0 + 2.0 - 0.05)
    assert link.round_trip_seconds == pytest.approx(0.5)


def test_late_answer_to_an_early_ping_does_not_shorten_a_lease() -> None:
    link = liveness()
    first, second = link.ping(START), link.ping(START + 0.1)
    link.pong(second, START + 0.2)
    until = link.lease_until
    link.pong(first, START + 0.3)

    assert link.lease_until == until


def test_no_lease_before_an_answer_or_without_an_announced_silence() -> None:
    link = liveness()
    stamp = link.ping(START)
    assert link.lease_until == 0.0

    link.promised(0.0)
    link.pong(stamp, START)
    assert link.lease_until <= START


def test_answer_from_the_future_is_refused() -> None:
    link = liveness()
    stamp = link.ping(START)

    with pytest.raises(ProtocolError):
        link.pong(stamp + 1, START)


def lease_of(link: Liveness, now: float, heartbeats_since: float) -> float:
    """How long before or after `now` the lease of a ping sent at `now` begins."""
    link.pong(link.ping(now, heartbeats_since), now + 0.001)
    return link.lease_until - LENGTH - now


LENGTH = 2.0 - 0.05


def test_ping_counts_from_the_last_heartbeats_if_they_are_old() -> None:
    """A peer that answers has not had a heartbeat since then. A busy process, whose ticks are late and
    whose pings are not, would otherwise rely on a follower that is free to vote."""
    assert lease_of(liveness(), START + 10.0, START + 9.7) == pytest.approx(0.0)
    link = liveness()
    assert lease_of(link, START + 10.0, START + 9.1) == pytest.approx(-0.55)
    assert link.round_trip_seconds == pytest.approx(0.001)


def test_pings_do_not_count_after_a_drop_until_all_heartbeats_are_repeated() -> None:
    """The message that did not fit into the queue may have been a heartbeat."""
    link = liveness()
    link.ping(START + 10.0, START + 9.8)
    link.dropped(START + 10.0, START + 9.8)

    assert lease_of(link, START + 10.1, START + 9.9) == pytest.approx(-0.1)
    link.dropped(START + 10.2, START + 9.95)
    assert lease_of(link, START + 10.3, START + 10.1) == pytest.approx(-0.3), "dropped again"
    assert lease_of(link, START + 10.5, START + 10.3) == pytest.approx(0.0)
