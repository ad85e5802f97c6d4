"""Peers that break the protocol, stall, or request too much are disconnected; other clients are
unaffected, and memory stays bounded."""

from __future__ import annotations

import random
import socket
import struct
import time
from contextlib import ExitStack, suppress

import pytest
from tests.stories.conftest import StartBroker
from tests.stories.wire_client import WireClient, fetch_request, produce_request

from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing.broker_process import BrokerProcess
from kafkaesque.wire.codec import encode_request_frame
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest

MIB = 1024 * 1024


def connect(broker: BrokerProcess) -> socket.socket:
    host, port = broker.bootstrap_servers.rsplit(":", 1)
    return socket.create_connection((host, int(port)), 10)


def is_closed(peer: socket.socket) -> bool:
    """Whether the broker closes the connection; a reset counts as well."""
    try:
        while peer.recv(65536):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def rss_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/status") as status:
        for line in status:
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
    raise AssertionError("no VmRSS")


HEADER = struct.pack(">hhih", 18, 3, 1, 0)

HOSTILE = {
    "garbage": random.Random(1).randbytes(4096),
    "HTTP": b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n",
    "TLS": bytes.fromhex("16030100f8010000f40303") + bytes(100),
    "negative length": struct.pack(">i", -5) + bytes(10),
    "huge length": struct.pack(">i", 2**31 - 1),
    "too short for a header": struct.pack(">i", 3) + b"abc",
    "unknown API": struct.pack(">ihhih", 10, 999, 0, 1, 0),
    "unknown version": struct.pack(">ihhih", 10, 3, 99, 1, 0),
    "old produce": struct.pack(">ihhih", 10, 0, 1, 1, 0),
    "client id beyond the frame": struct.pack(">ihhih", 10, 3, 1, 1, 500),
    "a million topics in ten bytes": struct.pack(">ihhihi", 14, 3, 1, 1, 0, 10**6),
    "a frame of tagged fields": struct.pack(">i", len(HEADER) + 400_003)
    + HEADER
    + b"\xc0\x9a\x0c"
    + b"\x01\x00" * 200_000,
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> BrokerProcess:
    with BrokerProcess(tmp_path_factory.mktemp("hostile")) as broker:
        yield broker  # type: ignore[misc]


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_broken_frame_closes_its_connection_with_one_log_line(
    shared: BrokerProcess, data: bytes
) -> None:
    before = shared.log.read_text().count("closing connection")
    with connect(shared) as peer, WireClient(shared.bootstrap_servers) as bystander:
        peer.sendall(data)
        assert is_closed(peer)
        bystander.create_topic(f"t{time.monotonic_ns()}")
    assert shared.log.read_text().count("closing connection") == before + 1


def test_claimed_length_costs_no_memory_before_the_bytes_come(shared: BrokerProcess) -> None:
    before = rss_bytes(shared.pid)
    with ExitStack() as stack:
        for _ in range(200):
            peer = stack.enter_context(connect(shared))
            peer.sendall(struct.pack(">i", 500 * 1024) + HEADER)
        with WireClient(shared.bootstrap_servers) as client:
            client.create_topic("bystander")
        assert rss_bytes(shared.pid) - before < 32 * MIB


def test_large_unfinished_requests_cost_bounded_memory_and_affect_no_other_client(
    start_broker: StartBroker,
) -> None:
    bound = {"queued.max.request.bytes": 16 * MIB, "socket.request.max.bytes": 16 * MIB}
    broker = start_broker(bound)
    with ExitStack() as stack:
        good = stack.enter_context(WireClient(broker.bootstrap_servers, timeout_seconds=60))
        good.create_topic("t")
        before = rss_bytes(broker.pid)
        for _ in range(30):
            peer = stack.enter_context(WireClient(broker.bootstrap_servers, timeout_seconds=60))
            peer.call(ApiVersionsRequest(), 0)
            with suppress(ConnectionError):
                peer.socket.sendall(struct.pack(">i", 12 * MIB) + HEADER + bytes(8 * MIB))
            assert good.produce("t", [bytes(1000)]).error_code == ErrorCode.NONE
        grown = rss_bytes(broker.pid) - before
        assert grown < 100 * MIB, f"{grown / MIB:.0f} MiB of 240 that were sent"
        assert len(good.read_all("t")) == 30
    assert "incomplete requests hold more than 16777216 bytes" in broker.log.read_text()


def test_slow_request_delays_no_other_connection(shared: BrokerProcess) -> None:
    with WireClient(shared.bootstrap_servers) as slow, WireClient(shared.bootstrap_servers) as fast:
        slow.create_topic("quiet")
        slow.send(fetch_request("quiet", 0, wait_ms=30_000), 12)
        for number in range(20):
            assert fast.produce("noisy" if number else "quiet2", [b"x"]).error_code in (
                ErrorCode.NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )


def test_answers_come_in_the_order_of_the_requests(shared: BrokerProcess) -> None:
    """A long poll, then two produces on the same connection: the poll is answered first."""
    from kafkaesque.wire.messages.fetch import FetchResponse
    from kafkaesque.wire.messages.produce import ProduceResponse

    with WireClient(shared.bootstrap_servers) as client:
        client.create_topic("ordered")
        client.send(fetch_request("ordered", 0, wait_ms=300), 12)
        client.send(produce_request("ordered", [b"1"]), 9)
        client.send(produce_request("ordered", [b"2"]), 9)
        fetched = client.receive(FetchResponse, 12)
        assert not fetched.responses[0].partitions[0].records
        offsets = [
            client.receive(ProduceResponse, 9).responses[0].partition_responses[0].base_offset
            for _ in range(2)
        ]
        assert offsets == [0, 1]


def test_client_that_never_reads_costs_bounded_memory(
    start_broker: StartBroker,
) -> None:
    broker = start_broker({"flush": "never"})
    with WireClient(broker.bootstrap_servers) as client:
        client.create_topic("big")
        for _ in range(16):
            assert client.produce("big", [bytes(1_000_000)]).error_code == ErrorCode.NONE
        before = rss_bytes(broker.pid)
        with ExitStack() as stack:
            for _ in range(30):
                peer = stack.enter_context(WireClient(broker.bootstrap_servers))
                for correlation in range(20):
                    request = fetch_request("big", 0, max_bytes=16 * MIB)
                    frame = encode_request_frame(request, 12, correlation, None)
                    peer.socket.sendall(b"".join(frame))
            # Other clients are served at the same time.
            assert client.produce("big", [b"x"]).error_code == ErrorCode.NONE
            grown = rss_bytes(broker.pid) - before
            assert grown < 400 * MIB, f"{grown / MIB:.0f} MiB"


def test_connection_limits_refuse_the_one_too_many(start_broker: StartBroker) -> None:
    broker = start_broker({"max.connections.per.ip": 3})
    with ExitStack() as stack:
        served = [stack.enter_context(WireClient(broker.bootstrap_servers)) for _ in range(3)]
        for client in served:
            client.create_topic(f"t{id(client)}")
        with connect(broker) as refused:
            assert is_closed(refused)
        served[0].create_topic("still-served")
    assert "max.connections.per.ip=3 reached" in broker.log.read_text()


def test_idle_connection_is_closed_after_its_time(start_broker: StartBroker) -> None:
    broker = start_broker({"connections.max.idle.ms": 1000})
    with connect(broker) as idle:
        idle.settimeout(30)
        assert is_closed(idle)


def test_plaintext_listener_on_a_public_address_needs_the_insecure_option(
    start_broker: StartBroker,
) -> None:
    from kafkaesque.testing.broker_process import BrokerNotReady

    with pytest.raises(BrokerNotReady, match="--insecure"):
        start_broker({"advertised.listeners": "127.0.0.1:0"}, listen="0.0.0.0:0")
