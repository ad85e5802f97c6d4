"""Translates librdkafka's errors to those of the port."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from kafkaesque.client.ports import (
    DeliveryFailed,
    LogError,
    LogUnavailable,
    OffsetGone,
    TopicUnknown,
    TransactionsUnsupported,
    WriterFenced,
)

UNREACHABLE = frozenset(
    {
        KafkaError._TRANSPORT,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._RESOLVE,
        KafkaError._TIMED_OUT,
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
    }
)
_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
    }
)
LEADERLESS = frozenset({KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE})
"""Transient: between two leaders, or before the first leader has the partition."""
_FENCED = frozenset(
    {KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED}
)
_NO_TRANSACTIONS = frozenset(
    {
        # A broker without transactions, one without the API, one that forbids it.
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError._UNSUPPORTED_FEATURE,
    }
)


def error_of(exception: KafkaException) -> KafkaError:
    """The error inside. librdkafka raises a bare string in a few places."""
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(inner))


def translate(error: KafkaError, doing: str) -> LogError:
    """The LogError that fits; `doing` completes the sentence "cannot ..."."""
    text = f"cannot {doing}: {error.str()} ({error.name()})"
    code = error.code()
    if code in _FENCED:
        return WriterFenced(text)
    if code in _MISSING:
        return TopicUnknown(text)
    if code == KafkaError._AUTO_OFFSET_RESET:
        return OffsetGone(text)
    if code in UNREACHABLE:
        return LogUnavailable(text)
    return LogError(text)


def translate_delivery(error: KafkaError, topic: str) -> LogError:
    """The LogError for a record that was not delivered."""
    if error.code() in _FENCED:
        return translate(error, f"write to {topic}")
    return DeliveryFailed(f"a record for {topic} failed: {error.str()} ({error.name()})")


def translate_transaction_start(error: KafkaError) -> LogError:
    """The LogError for a transactional producer that could not be initialized."""
    if error.code() in _NO_TRANSACTIONS:
        return TransactionsUnsupported(f"no transactions here: {error.str()} ({error.name()})")
    return translate(error, "start transactions")
