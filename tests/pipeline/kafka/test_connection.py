"""Connections against peers that do not behave, TLS and SASL against a peer that does."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkaesque.pipeline.errors import KafkaRefused
from kafkaesque.pipeline.kafka.connection import (
    Address,
    Connection,
    ConnectionLost,
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
)
from kafkaesque.pipeline.kafka.security import Security
from kafkaesque.wire.codec import encode
from kafkaesque.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from kafkaesque.wire.table import Response


@contextlib.contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[Address]:
    """A server for one connection."""
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with listener, contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                serve(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Address("127.0.0.1", listener.getsockname()[1])
    finally:
        with contextlib.suppress(OSError):
            socket.create_connection(listener.getsockname(), 1).close()
        thread.join()


def read_request(connection: socket.socket) -> tuple[int, bytes]:
    """Correlation id and the whole frame of the next request."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    frame = connection.recv(size, socket.MSG_WAITALL)
    return struct.unpack_from(">i", frame, 4)[0], frame


def framed(response: Response, version: int, correlation: int) -> bytes:
    body = b"".join(encode(response, version))
    return struct.pack(">ii", len(body) + 4, correlation) + body


def answer(connection: socket.socket, response: Response, version: int = 0) -> bytes:
    correlation, frame = read_request(connection)
    connection.sendall(framed(response, version, correlation))
    return frame


VERSIONS = ApiVersionsResponse(
    error_code=0,
    api_keys=[ApiVersion(api_key=key, min_version=0, max_version=1) for key in (3, 17, 18, 36)],
)


@pytest.mark.parametrize(
    "noise", [b"HTTP/1.1 400 Bad Request\r\n", b"", b"\0\0\0\x08\0\0\0\x63\0\0\0\0", b"\0\0\0\x01a"]
)
def test_peer_that_does_not_speak_kafka_is_a_lost_connection(noise: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(noise)

    with peer(serve) as address, pytest.raises(ConnectionLost):
        Connection(address, Security(), 5)


def test_sasl_goes_through_handshake_and_exchange() -> None:
    seen: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        answer(connection, VERSIONS)
        seen.append(answer(connection, SaslHandshakeResponse(error_code=0, mechanisms=[]), 1))
        done = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"")
        seen.append(answer(connection, done, 1))

    with peer(serve) as address:
        Connection(address, Security(mechanism="PLAIN", username="ann", password="pw"), 5).close()
    assert seen[0].endswith(b"PLAIN")
    assert seen[1].endswith(b"\0ann\0pw")


def test_refused_password_is_told_with_the_user_and_not_the_password() -> None:
    def serve(connection: socket.socket) -> None:
        answer(connection, VERSIONS)
        answer(connection, SaslHandshakeResponse(error_code=0, mechanisms=[]), 1)
        refused = SaslAuthenticateResponse(error_code=58, error_message="no", auth_bytes=b"")
        answer(connection, refused, 1)

    with (
        peer(serve) as address,
        pytest.raises(KafkaRefused, match="refused user 'ann': no") as told,
    ):
        Connection(address, Security(mechanism="PLAIN", username="ann", password="pw"), 5)
    assert "pw" not in str(told.value)


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
            correlation = struct.unpack_from(">i", frame, 4)[0]
            secured.sendall(framed(VERSIONS, 0, correlation))

    return serve


def test_tls_with_the_right_authority_is_spoken(certificate: tuple[Path, Path]) -> None:
    with peer(tls_server(certificate)) as address:
        Connection(address, Security(uses_tls=True, ca_file=str(certificate[1])), 5).close()


def test_tls_with_an_unknown_authority_is_refused(certificate: tuple[Path, Path]) -> None:
    with peer(tls_server(certificate)) as address, pytest.raises(KafkaRefused, match="self-signed"):
        Connection(address, Security(uses_tls=True), 5)
