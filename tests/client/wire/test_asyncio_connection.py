"""Asyncio connections and the pool, to scripted peers and to a real broker."""

from __future__ import annotations

import asyncio
import functools
import socket
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

import pytest
from tests.client.wire.servers import API_VERSIONS, answer, peer, read_request

from kafkaesque.client.wire.address import parse_bootstrap, parse_broker_address
from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.client.wire.errors import ApiUnsupported, AuthenticationFailed, ConnectionLost
from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.client.wire.sasl import (
    SaslAuthenticateResponse,
    SaslCredentials,
    SaslHandshakeResponse,
)
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.testing import Broker
from kafkaesque.wire.messages.fetch import FetchRequest, FetchResponse
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

P = ParamSpec("P")

ANN = SaslCredentials("PLAIN", "ann", "pw")
REQUEST = MetadataRequest(topics=[])
METADATA = MetadataResponse(brokers=[], topics=[])


def in_event_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def test_bootstrap_is_a_list_of_addresses() -> None:
    assert parse_bootstrap("a:1, [::1]:2,b") == [("a", 1), ("::1", 2), ("b", 9092)]
    assert str(Address("a", 1)) == "a:1"


@in_event_loop
async def test_requests_are_pipelined() -> None:
    with Broker() as broker:
        connection = await AsyncConnection.open(parse_broker_address(broker.bootstrap_servers))
        answers = await asyncio.gather(
            *(connection.call(REQUEST, MetadataResponse) for _ in range(10))
        )
        assert [[row.node_id for row in one.brokers] for one in answers] == [[0]] * 10
        connection.close()
        with pytest.raises(ConnectionLost):
            await connection.call(REQUEST, MetadataResponse)


@in_event_loop
async def test_without_negotiation_the_caller_names_the_version() -> None:
    versions: list[int] = []
    with peer(lambda connection: versions.append(answer(connection, METADATA)[3])) as address:
        connection = await AsyncConnection.open(address, negotiates=False)
        with pytest.raises(ApiUnsupported):
            await connection.call(REQUEST, MetadataResponse)
        assert await connection.call(REQUEST, MetadataResponse, version=5) == METADATA
        connection.close()
    assert versions == [5]


@in_event_loop
async def test_closed_connection_fails_all_that_wait() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        read_request(connection)

    with peer(serve) as address:
        connection = await AsyncConnection.open(address)
        calls = [connection.call(REQUEST, MetadataResponse) for _ in range(2)]
        for outcome in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)
        assert not connection.is_open


@pytest.mark.parametrize("noise", [b"HTTP/1.1 400 Bad Request\r\n", b"", b"\0\0\0\x02ab"])
@in_event_loop
async def test_peer_that_does_not_speak_kafka_is_a_lost_connection(noise: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(noise)

    with peer(serve) as address, pytest.raises(ConnectionLost, match=str(address)):
        await AsyncConnection.open(address)


def stay_silent(connection: socket.socket) -> None:
    read_request(connection)
    connection.settimeout(1)
    connection.recv(1)


@in_event_loop
async def test_silent_peer_ends_at_the_deadline() -> None:
    with peer(stay_silent) as address, pytest.raises(ConnectionLost, match="timed out"):
        await AsyncConnection.open(address, timeout_s=0.1)


@in_event_loop
async def test_call_ends_at_its_own_deadline() -> None:
    with peer(stay_silent) as address:
        connection = await AsyncConnection.open(address, negotiates=False)
        with pytest.raises(ConnectionLost, match="timed out"):
            await connection.call(REQUEST, MetadataResponse, version=1, timeout_s=0.1)


@in_event_loop
async def test_request_without_a_common_version_is_not_sent() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        answer(connection, METADATA)

    with peer(serve) as address:
        connection = await AsyncConnection.open(address)
        with pytest.raises(ApiUnsupported, match="FetchRequest"):
            await connection.call(
                FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), FetchResponse
            )
        await connection.call(REQUEST, MetadataResponse)
        connection.close()


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.SASL_AUTHENTICATION_FAILED])
@in_event_loop
async def test_sasl_precedes_requests(code: ErrorCode) -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        answer(connection, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=[]))
        done = SaslAuthenticateResponse(error_code=code, error_message=None, auth_bytes=b"")
        seen.append(answer(connection, done))

    with peer(serve) as address:
        if code:
            with pytest.raises(AuthenticationFailed, match="refused user 'ann'"):
                await AsyncConnection.open(address, credentials=ANN)
        else:
            (await AsyncConnection.open(address, credentials=ANN)).close()
    assert seen[0].endswith(b"\0ann\0pw")


@in_event_loop
async def test_pool_keeps_one_connection_per_broker_and_replaces_a_broken_one() -> None:
    with Broker() as broker:
        address = parse_broker_address(broker.bootstrap_servers)
        pool = ConnectionPool([Address("127.0.0.1", 1), address])
        first = await pool.any()
        assert await pool.any() is first
        with pytest.raises(ConnectionLost, match="broker 0"):
            await pool.node(0)
        pool.set_brokers({0: address})
        assert await pool.node(0) is first
        first.close()
        await asyncio.sleep(0)
        second = await pool.node(0)
        assert second is not first
        assert second.is_open
        pool.close()


@in_event_loop
async def test_pool_names_every_address_that_failed() -> None:
    pool = ConnectionPool([Address("127.0.0.1", 1), Address("127.0.0.1", 2)])
    with pytest.raises(ConnectionLost, match=r"127\.0\.0\.1:1: .*; 127\.0\.0\.1:2: "):
        await pool.any()
