"""The protocol of a connection without a socket."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.samples import UNHURRIED
from tests.client.wire.servers import API_VERSIONS, framed

from kafkaesque.client.wire.errors import ApiUnsupported, AuthenticationFailed
from kafkaesque.client.wire.protocol import RESPONSE_BYTES_MAX, ClientProtocol
from kafkaesque.client.wire.sasl import (
    SaslAuthenticateRequest,
    SaslCredentials,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kafkaesque.model.errors import ErrorCode, ProtocolError
from kafkaesque.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse

REQUEST = MetadataRequest(topics=[])
RESPONSE = MetadataResponse(brokers=[], topics=[])
ANN = SaslCredentials("SCRAM-SHA-256", "ann", "pw")


def negotiated(**versions: int) -> ClientProtocol:
    """After the handshake with a broker that has Metadata `low` to `high`."""
    protocol = ClientProtocol("a:1", "test")
    offered = ApiVersion(
        api_key=MetadataRequest.API_KEY,
        min_version=versions.get("low", 0),
        max_version=versions.get("high", 5),
    )
    steps = protocol.handshake(None, "nonce")
    next(steps)
    with contextlib.suppress(StopIteration):
        steps.send(ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[offered]))
    return protocol


def frame(response: MetadataResponse, version: int, correlation_id: int) -> memoryview:
    return memoryview(framed(response, version, correlation_id))[4:]


def test_version_is_the_newest_in_common_up_to_a_limit() -> None:
    assert negotiated(high=5).choose_version(MetadataRequest) == 5
    assert negotiated(high=99).choose_version(MetadataRequest) == MetadataRequest.VERSIONS.high
    assert negotiated(high=5).choose_version(MetadataRequest, 3) == 3


@pytest.mark.parametrize("versions", [{"low": 90, "high": 99}, {"low": 4, "high": 5}])
def test_request_without_a_common_version_is_unsupported(versions: dict[str, int]) -> None:
    with pytest.raises(ApiUnsupported, match="a:1 has no version of MetadataRequest"):
        negotiated(**versions).choose_version(MetadataRequest, 3)


def test_responses_are_matched_in_order() -> None:
    protocol = negotiated()
    protocol.encode(REQUEST, MetadataResponse, 1)
    protocol.encode(REQUEST, MetadataResponse, 5)
    assert protocol.in_flight == 2
    assert protocol.decode(frame(RESPONSE, 1, 1)) == RESPONSE
    assert protocol.decode(frame(RESPONSE, 5, 2)) == RESPONSE
    assert protocol.in_flight == 0


def test_response_out_of_order_is_an_error() -> None:
    protocol = negotiated()
    protocol.encode(REQUEST, MetadataResponse, 1)
    with pytest.raises(ProtocolError, match="another request"):
        protocol.decode(frame(RESPONSE, 1, 7))
    with pytest.raises(ProtocolError, match="no request"):
        protocol.decode(frame(RESPONSE, 1, 1))


@pytest.mark.parametrize("size", [-1, 0, 3, RESPONSE_BYTES_MAX + 1])
def test_impossible_frame_size_is_an_error(size: int) -> None:
    with pytest.raises(ProtocolError, match="bytes"):
        ClientProtocol("a:1", "test").frame_size(struct.pack(">i", size))


@UNHURRIED
@given(st.binary(max_size=60))
def test_any_bytes_raise_only_a_protocol_error(data: bytes) -> None:
    for request, response, version in (
        (REQUEST, MetadataResponse, 1),
        (REQUEST, MetadataResponse, 12),
        (ApiVersionsRequest(), ApiVersionsResponse, 3),
    ):
        for body in (data, struct.pack(">i", 1) + data):
            protocol = ClientProtocol("a:1", "test")
            protocol.encode(request, response, version)
            with contextlib.suppress(ProtocolError):
                protocol.decode(memoryview(body))


def test_handshake_authenticates_after_versions() -> None:
    protocol = ClientProtocol("a:1", "test")
    steps = protocol.handshake(ANN, "nonce")
    assert isinstance(next(steps).request, ApiVersionsRequest)
    step = steps.send(API_VERSIONS)
    assert isinstance(step.request, SaslHandshakeRequest)
    assert step.request.mechanism == "SCRAM-SHA-256"
    step = steps.send(SaslHandshakeResponse(error_code=ErrorCode.NONE, mechanisms=[]))
    assert isinstance(step.request, SaslAuthenticateRequest)
    assert step.request.auth_bytes == b"n,,n=ann,r=nonce"


def test_broker_without_sasl_is_reported() -> None:
    steps = ClientProtocol("a:1", "test").handshake(ANN, "nonce")
    next(steps)
    with pytest.raises(AuthenticationFailed, match=r"a:1 has no SASL: .*security\.protocol"):
        steps.send(ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=[]))
