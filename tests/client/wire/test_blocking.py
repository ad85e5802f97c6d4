"""Blocking connections to peers that misbehave, and TLS and SASL to a peer that does not."""

from __future__ import annotations

import select
import socket
import ssl
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.client.wire.servers import API_VERSIONS, answer, framed, peer, read_request

from kafkaesque.client.wire.blocking import BlockingConnection, BrokerClient
from kafkaesque.client.wire.errors import ApiUnsupported, AuthenticationFailed, ConnectionLost
from kafkaesque.client.wire.sasl import (
    SaslAuthenticateResponse,
    SaslCredentials,
    SaslHandshakeResponse,
)
from kafkaesque.client.wire.security import PLAINTEXT, Security
from kafkaesque.model.address import Address
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.api_versions import ApiVersionsResponse
from kafkaesque.wire.messages.fetch import FetchRequest, FetchResponse
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

ANN = Security(credentials=SaslCredentials("PLAIN", "ann", "pw"))
METADATA = MetadataResponse(brokers=[], topics=[])


def connect(
    address: Address, security: Security = PLAINTEXT, timeout_s: float = 5
) -> BlockingConnection:
    return BlockingConnection(address, security, timeout_s=timeout_s)


@pytest.mark.parametrize(
    "noise",
    [
        b"HTTP/1.1 400 Bad Request\r\n",
        b"",
        b"\0\0\0\x08\0\0\0\x63\0\0\0\0",
        b"\0\0\0\x01a",
        b"\0\0\0\x02ab",
        b"\0",
    ],
)
def test_peer_that_does_not_speak_kafka_is_a_lost_connection(noise: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(noise)

    with peer(serve) as address, pytest.raises(ConnectionLost, match=str(address)):
        connect(address)


def test_broker_before_kafka_2_4_is_asked_again_in_version_0() -> None:
    seen: list[int] = []

    def serve(connection: socket.socket) -> None:
        version, correlation_id, _ = read_request(connection)
        seen.append(version)
        refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
        connection.sendall(framed(refused, 0, correlation_id))
        version, correlation_id, _ = read_request(connection)
        seen.append(version)
        connection.sendall(framed(API_VERSIONS, 0, correlation_id))

    with peer(serve) as address, connect(address) as connection:
        assert connection.protocol.api_versions.apis[3] == (0, 1)
    assert seen == [3, 0]


def test_version_is_the_newest_in_common() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        seen.append(answer(connection, METADATA))

    with peer(serve) as address, connect(address) as connection:
        connection.call(MetadataRequest(topics=[]), MetadataResponse)
        with pytest.raises(ApiUnsupported, match="FetchRequest"):
            connection.call(FetchRequest(max_wait_ms=0, min_bytes=0, topics=[]), FetchResponse)
    assert seen[0][:4] == struct.pack(">hh", 3, 1)


def test_response_that_trickles_in_ends_at_the_deadline() -> None:
    def serve(connection: socket.socket) -> None:
        _, correlation_id, _ = read_request(connection)
        for byte in framed(API_VERSIONS, 3, correlation_id):
            connection.sendall(bytes([byte]))
            has_closed, _, _ = select.select([connection], [], [], 0.05)
            if has_closed:
                return

    with peer(serve) as address, pytest.raises(ConnectionLost, match="timed out"):
        connect(address, timeout_s=0.3)


def test_connection_with_a_response_outstanding_is_not_idle() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        answer(connection, METADATA)

    with peer(serve) as address, connect(address) as connection:
        assert connection.is_idle
        connection.send(MetadataRequest(topics=[]), MetadataResponse)
        assert not connection.is_idle
        connection.receive(MetadataResponse)
        assert connection.is_idle
        connection.close()
        assert not connection.is_idle


def test_client_connects_again_after_a_failure() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = BrokerClient(
            Address("127.0.0.1", listener.getsockname()[1]), timeout_s=0.2, client_id="test"
        )
        with pytest.raises(ConnectionLost):
            client.call(MetadataRequest(topics=[]), MetadataResponse, 1)
        listener.accept()[0].close()

    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.close()

    with peer(serve) as address:
        client = BrokerClient(address, timeout_s=5, client_id="test")
        for _ in range(2):
            with pytest.raises(OSError, match=r"closed|reset|refused"):
                client.call(MetadataRequest(topics=[]), MetadataResponse, 1)
        client.close()


def test_sasl_goes_through_handshake_and_exchange() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        seen.append(
            answer(connection, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=[]))
        )
        done = SaslAuthenticateResponse(
            error_code=ErrorCode.NONE, error_message=None, auth_bytes=b""
        )
        seen.append(answer(connection, done))

    with peer(serve) as address:
        connect(address, ANN).close()
    assert seen[0].endswith(b"PLAIN")
    assert seen[1].endswith(b"\0ann\0pw")


def test_refused_password_is_reported_with_the_user_and_not_the_password() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        answer(connection, SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=[]))
        code = ErrorCode.SASL_AUTHENTICATION_FAILED
        refused = SaslAuthenticateResponse(error_code=code, error_message="no", auth_bytes=b"")
        answer(connection, refused)

    with (
        peer(serve) as address,
        pytest.raises(AuthenticationFailed, match="refused user 'ann': no") as caught,
    ):
        connect(address, ANN)
    assert "pw" not in str(caught.value)


def test_mechanism_that_the_broker_lacks_is_reported_with_those_it_has() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, API_VERSIONS)
        code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
        answer(connection, SaslHandshakeResponse(error_code=code, mechanisms=["GSSAPI"]))

    with peer(serve) as address, pytest.raises(AuthenticationFailed, match="only GSSAPI"):
        connect(address, ANN)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    directory = tmp_path_factory.mktemp("tls")
    key, crt = directory / "key.pem", directory / "crt.pem"
    try:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
                *("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"),
                *("-keyout", str(key), "-out", str(crt)),
            ],
            check=True,
            capture_output=True,
        )
    except FileNotFoundError:
        pytest.skip("needs openssl (Debian: apt install openssl)")
    return key, crt


def tls_server(certificate: tuple[Path, Path]) -> Callable[[socket.socket], None]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate[1], certificate[0])

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            size = int.from_bytes(secured.recv(4), "big")
            frame = secured.recv(size)
            version, correlation_id = struct.unpack_from(">hi", frame, 2)
            secured.sendall(framed(API_VERSIONS, version, correlation_id))

    return serve


def test_tls_with_the_right_authority_is_accepted(certificate: tuple[Path, Path]) -> None:
    with peer(tls_server(certificate)) as address:
        connect(address, Security(uses_tls=True, ca_file=str(certificate[1]))).close()


def test_tls_with_an_unknown_authority_is_refused(certificate: tuple[Path, Path]) -> None:
    with (
        peer(tls_server(certificate)) as address,
        pytest.raises(AuthenticationFailed, match="self-signed"),
    ):
        connect(address, Security(uses_tls=True))
