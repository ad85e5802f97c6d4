"""Errors of a connection to a broker. Every message names the address."""

from __future__ import annotations

from kafkaesque.model.errors import ErrorCode


class ConnectionLost(ConnectionError):
    """The broker could not be reached, closed the connection, was too slow, or is not a Kafka.

    The connection is closed. `__cause__` is the underlying OSError or ProtocolError, if there is one.
    A request that was sent may have been carried out.
    """


class AuthenticationFailed(ConnectionLost):
    """TLS or SASL failed on either side. Trying again does not help."""


class ApiUnsupported(Exception):
    """The broker and this client have no version of a request in common."""


def error_name(code: int) -> str:
    """Kafka's name for an error code, or its number if Kafka 4.3 does not define it."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def reason(error: BaseException) -> str:
    """The text of an error. An error without text gets its type's name, a `TimeoutError()` "timed out"."""
    return str(error) or ("timed out" if isinstance(error, TimeoutError) else type(error).__name__)
