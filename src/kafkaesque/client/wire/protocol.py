"""One connection's side of Kafka's protocol: requests to bytes, frames to responses. No I/O.

A connection begins with `handshake`: ApiVersions, then SASL if there are credentials. A shell
(`blocking`, `asyncio_connection`) sends what `encode` returns, reads a length prefix, checks it with
`frame_size`, reads that many bytes and gets the response from `decode`. Responses arrive in the order
of their requests, as Kafka guarantees, so several requests may be in flight.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kafkaesque import __version__
from kafkaesque.client.wire.errors import ApiUnsupported, AuthenticationFailed, error_name
from kafkaesque.client.wire.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslCredentials,
    SaslFailed,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    start_exchange,
)
from kafkaesque.model.errors import ErrorCode, ProtocolError
from kafkaesque.model.limits import REQUEST_SIZE_BYTES_DEFAULT
from kafkaesque.wire.codec import (
    Buffers,
    decode_correlation_id,
    decode_response,
    encode_request_frame,
)
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaesque.wire.table import VERSION_MAX, Request, Response, Versions

LENGTH_BYTES: Final = 4
RESPONSE_BYTES_MAX: Final = REQUEST_SIZE_BYTES_DEFAULT
RESPONSE_BYTES_MIN: Final = 4
"""A correlation id."""
API_VERSIONS_VERSION: Final = 3
"""The first that carries the broker's features."""
SASL_HANDSHAKE_VERSION: Final = 1
"""Puts the exchange into SaslAuthenticate requests (KIP-152)."""

_unpack_length = struct.Struct(">i").unpack_from
_unpack_error = struct.Struct(">h").unpack_from


@dataclass(frozen=True, slots=True)
class ApiVersions:
    """Versions of each API that a broker supports, and of its features."""

    apis: Mapping[int, Versions] = field(default_factory=dict)
    features: Mapping[str, Versions] = field(default_factory=dict)


class Exchange(NamedTuple):
    """One request of a handshake, and what answers it."""

    request: Request
    response: type[Response]
    version: int


class _Expected(NamedTuple):
    correlation_id: int
    version: int
    response: type[Response]


class ClientProtocol:
    """The state of one connection: negotiated versions and requests in flight.

    `peer` is the broker's address for error messages. After a ProtocolError the stream cannot be
    trusted and the connection must be closed.
    """

    __slots__ = ("_client_id", "_expected", "_last_id", "_peer", "api_versions")

    def __init__(self, peer: str, client_id: str) -> None:
        self._peer = peer
        self._client_id = client_id
        self._last_id = 0
        self._expected: deque[_Expected] = deque()
        self.api_versions = ApiVersions()

    @property
    def in_flight(self) -> int:
        return len(self._expected)

    def choose_version(self, request: type[Request], version_max: int = VERSION_MAX) -> int:
        """The newest version, up to `version_max`, that both sides have. Raises ApiUnsupported."""
        offered = self.api_versions.apis.get(request.API_KEY)
        if offered is not None:
            version = min(offered.high, request.VERSIONS.high, version_max)
            if version >= max(offered.low, request.VERSIONS.low):
                return version
        raise ApiUnsupported(f"{self._peer} has no version of {request.__name__} in common with us")

    def encode(self, request: Request, response: type[Response], version: int) -> Buffers:
        """The frame of a request; its response is the next one that is expected."""
        number = self._last_id = self._last_id + 1
        frame = encode_request_frame(request, version, number, self._client_id)
        self._expected.append(_Expected(number, version, response))
        return frame

    def frame_size(self, prefix: bytes | bytearray) -> int:
        """The length that a prefix announces. Raises ProtocolError if no response has it."""
        (size_bytes,) = _unpack_length(prefix)
        if not RESPONSE_BYTES_MIN <= size_bytes <= RESPONSE_BYTES_MAX:
            raise ProtocolError(f"a frame of {size_bytes} bytes is not Kafka's protocol")
        return int(size_bytes)

    def decode(self, frame: memoryview) -> Response:
        """The response in the next frame (without its length). Raises ProtocolError.

        Records in it are slices of `frame`.
        """
        if not self._expected:
            raise ProtocolError("a response that no request asked for")
        number, version, response = self._expected.popleft()
        if decode_correlation_id(frame) != number:
            raise ProtocolError("a response to another request")
        if response is ApiVersionsResponse and _is_version_refused(frame):
            version = 0
        return decode_response(response, frame, version)

    def handshake(
        self, credentials: SaslCredentials | None, nonce: str
    ) -> Generator[Exchange, Any, None]:
        """Yields requests; is sent the response to each. Ends when requests may follow.

        `nonce` is a fresh random text for SCRAM. Raises ProtocolError or AuthenticationFailed.
        """
        yield from self._negotiate()
        if credentials is not None:
            yield from self._authenticate(credentials, nonce)

    def _negotiate(self) -> Generator[Exchange, Any, None]:
        hello = ApiVersionsRequest(
            client_software_name="kafkaesque", client_software_version=__version__
        )
        answer = yield Exchange(hello, ApiVersionsResponse, API_VERSIONS_VERSION)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # Kafka before 2.4. Every broker since 0.10 has version 0.
            answer = yield Exchange(ApiVersionsRequest(), ApiVersionsResponse, 0)
        if answer.error_code:
            raise ProtocolError(f"ApiVersions was refused with {error_name(answer.error_code)}")
        self.api_versions = ApiVersions(
            {api.api_key: Versions(api.min_version, api.max_version) for api in answer.api_keys},
            {
                feature.name: Versions(feature.min_version, feature.max_version)
                for feature in answer.supported_features
            },
        )

    def _authenticate(
        self, credentials: SaslCredentials, nonce: str
    ) -> Generator[Exchange, Any, None]:
        if SaslHandshakeRequest.API_KEY not in self.api_versions.apis:
            raise AuthenticationFailed(
                f"{self._peer} has no SASL: its listener needs another security.protocol"
            )
        handshake = SaslHandshakeRequest(mechanism=credentials.mechanism)
        answer = yield Exchange(handshake, SaslHandshakeResponse, SASL_HANDSHAKE_VERSION)
        if answer.error_code:
            raise AuthenticationFailed(
                f"{self._peer} has no {credentials.mechanism}, only {', '.join(answer.mechanisms)}"
            )
        version = self.choose_version(SaslAuthenticateRequest)
        exchange = start_exchange(credentials, nonce)
        message: bytes | None = exchange.first()
        try:
            while message is not None:
                request = SaslAuthenticateRequest(auth_bytes=message)
                answer = yield Exchange(request, SaslAuthenticateResponse, version)
                if answer.error_code:
                    raise AuthenticationFailed(
                        f"{self._peer} refused user '{credentials.username}': "
                        f"{answer.error_message or error_name(answer.error_code)}"
                    )
                message = exchange.respond(bytes(answer.auth_bytes))
        except SaslFailed as error:
            raise AuthenticationFailed(f"{self._peer}: {error}") from None


def _is_version_refused(frame: memoryview) -> bool:
    """Whether an ApiVersions response refuses the version: its body is then of v0 (KIP-511)."""
    if len(frame) < LENGTH_BYTES + 2:
        return False
    return bool(_unpack_error(frame, LENGTH_BYTES)[0] == ErrorCode.UNSUPPORTED_VERSION)
