"""Refusals that only transactional producers meet, with Kafka's codes."""

from __future__ import annotations

from kafkaesque.model.errors import ErrorCode, KafkaError


class TransactionCoordinatorFenced(KafkaError):
    """A marker from a coordinator that has been replaced."""

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED


class RefusedByCoordinator(KafkaError):
    """The transaction coordinator refused a batch, with the code it gave."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(f"The transaction coordinator answered {code.name}")
        self.code = code  # type: ignore[misc]
