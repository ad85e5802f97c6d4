"""JSON responses, the HTTP status of each error, and reading of JSON bodies."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kafkaesque.client.dead_letters import LetterUnknown
from kafkaesque.client.wire.errors import ApiUnsupported, AuthenticationFailed, ConnectionLost
from kafkaesque.console.cluster.admin import AdminRequestFailed
from kafkaesque.console.documents.state import ResourceNotFound
from kafkaesque.console.messages.producer import ProduceFailed
from kafkaesque.console.messages.query import InvalidQuery
from kafkaesque.console.messages.scan import ScanFailed
from kafkaesque.console.services.coordination import CoordinationReadFailed
from kafkaesque.console.services.dead_letters import LettersFailed
from kafkaesque.console.services.process_control import ControlFailed
from kafkaesque.console.web.security import AccessDenied

T = TypeVar("T")

BODY_BYTES_MAX: Final = 2 << 20
ERROR_STATUSES: Final[dict[type[Exception], int]] = {
    ResourceNotFound: 404,
    LetterUnknown: 404,
    InvalidQuery: 400,
    AdminRequestFailed: 409,
    ScanFailed: 503,
    ProduceFailed: 409,
    ControlFailed: 409,
    CoordinationReadFailed: 503,
    LettersFailed: 409,
    ConnectionLost: 503,
    AuthenticationFailed: 503,
    ApiUnsupported: 501,
}


def json_response(document: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def error_response(_request: Request, error: Exception) -> Response:
    if isinstance(error, AccessDenied):
        return json_response({"error": str(error)}, error.status)
    return json_response({"error": str(error)}, ERROR_STATUSES.get(type(error), 500))


async def read_body(request: Request, kind: type[T]) -> T:
    """The JSON body as `kind`. Raises InvalidQuery."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            raise InvalidQuery(f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidQuery(f"body: {error}") from None
