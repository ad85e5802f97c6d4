"""How an administrative request fails. Each message is a sentence for the operator."""

from __future__ import annotations

from typing import Final

from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.errors import ErrorCode

_MISSING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.BROKER_ID_NOT_REGISTERED}
)


class AdminError(Exception):
    """The operation did not happen."""


class BrokerUnavailable(AdminError):
    """A broker did not answer. The operation may have happened."""


class ResourceNotFound(AdminError):
    """The topic, broker or transaction that was named does not exist."""


def refusal(code: int, message: str | None, doing: str) -> AdminError:
    """The error for a code of Kafka's; `doing` completes "cannot ..."."""
    kind = ResourceNotFound if code in _MISSING else AdminError
    name = error_name(code)
    return kind(f"cannot {doing}: {message} ({name})" if message else f"cannot {doing}: {name}")
