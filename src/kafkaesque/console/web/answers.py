"""JSON answers, and failures as answers: each kind of failure has its status in one table."""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from kafkaesque.console.cluster.link import NotOffered, Unreachable
from kafkaesque.console.cluster.operating import OperationFailed
from kafkaesque.console.documents.state import NotThere
from kafkaesque.console.messages.query import InvalidQuery
from kafkaesque.console.messages.scanning import ScanFailed
from kafkaesque.console.messages.writing import WriteFailed
from kafkaesque.console.services.control import ControlFailed
from kafkaesque.console.services.coordination import CoordinationFailed
from kafkaesque.console.services.dead_letters import LettersFailed
from kafkaesque.console.web.guarding import Forbidden

T = TypeVar("T")

BODY_BYTES_MAX: Final = 2 << 20
STATUSES: Final[dict[type[Exception], int]] = {
    NotThere: 404,
    InvalidQuery: 400,
    OperationFailed: 409,
    ScanFailed: 503,
    WriteFailed: 409,
    ControlFailed: 409,
    CoordinationFailed: 503,
    LettersFailed: 409,
    Unreachable: 503,
    NotOffered: 501,
}


def json_answer(document: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")


def failure_answer(_request: Request, error: Exception) -> Response:
    if isinstance(error, Forbidden):
        return json_answer({"error": str(error)}, error.status)
    return json_answer({"error": str(error)}, STATUSES.get(type(error), 500))


async def read_body(request: Request, kind: type[T]) -> T:
    """The JSON body as `kind`; InvalidQuery says what is wrong with it."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > BODY_BYTES_MAX:
            raise InvalidQuery(f"a body has at most {BODY_BYTES_MAX} bytes")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidQuery(f"body: {error}") from None
