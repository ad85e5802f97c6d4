"""Load at a fixed rate: send times, contents and latencies of requests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from kafkaesque.lab.bench.paced_load import NS_PER_S, PacedConnection, ProduceFrame, drive_paced
from kafkaesque.lab.bench.raw_load import LoadFailed

ANSWER = (4).to_bytes(4) + b"done"


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def connection(
    sock: socket.socket, *, interval_ns: int = 0, in_flight_max: int = 2
) -> PacedConnection:
    return PacedConnection(
        sock, [ProduceFrame(b"aa", 1, 2), ProduceFrame(b"bb", 1, 2)], interval_ns, in_flight_max
    )


def test_frames_are_sent_in_turn_when_they_are_due(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    one = connection(ends[0], interval_ns=10, in_flight_max=9)
    assert one.push(started_ns=100, now_ns=125, count_max=99) == 130
    assert ends[1].recv(99) == b"aabbaa"


def test_a_full_pipeline_waits_for_answers(ends: tuple[socket.socket, socket.socket]) -> None:
    one = connection(ends[0])
    assert one.push(0, 1, 99) == 1 + NS_PER_S
    assert ends[1].recv(99) == b"aabb"
    ends[1].sendall(ANSWER + ANSWER[:5])
    one.pull()
    assert one.answers == [b"done"]
    assert one.in_flight == 1


def test_latency_is_measured_from_the_due_time(
    ends: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = connection(ends[0], interval_ns=10)
    one.push(started_ns=100, now_ns=500, count_max=2)
    ends[1].sendall(ANSWER * 2)
    monkeypatch.setattr("kafkaesque.lab.bench.paced_load.perf_counter_ns", lambda: 1000)
    one.pull()
    assert one.latencies_ns == [900, 890]


def test_drive_ends_when_every_request_is_answered(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    def answer() -> None:
        for _ in range(5):
            ends[1].recv(2, socket.MSG_WAITALL)
            ends[1].sendall(ANSWER)

    server = threading.Thread(target=answer)
    server.start()
    one = connection(ends[0])
    drive_paced([one], [5], last_s=60)
    server.join()
    assert len(one.answers) == 5


def test_a_closed_connection_is_a_failure(ends: tuple[socket.socket, socket.socket]) -> None:
    ends[1].close()
    with pytest.raises(LoadFailed, match="closed"):
        connection(ends[0]).pull()
