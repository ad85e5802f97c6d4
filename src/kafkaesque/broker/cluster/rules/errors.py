"""Errors of the control plane, with Kafka's codes. Only brokers and administrators see them."""

from __future__ import annotations

from kafkaesque.model.errors import ErrorCode, KafkaError


class ControllerMoved(Exception):
    """Another node is the controller; the request was not and will not be carried out here.

    Not a KafkaError: no client sees it. The dispatcher sends the request to the next controller.
    """


class DuplicateBrokerRegistration(KafkaError):
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION


class InvalidRegistration(KafkaError):
    code = ErrorCode.INVALID_REGISTRATION


class InconsistentClusterId(KafkaError):
    code = ErrorCode.INCONSISTENT_CLUSTER_ID


class BrokerIdNotRegistered(KafkaError):
    code = ErrorCode.BROKER_ID_NOT_REGISTERED


class NoReassignmentInProgress(KafkaError):
    code = ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


class ElectionNotNeeded(KafkaError):
    code = ErrorCode.ELECTION_NOT_NEEDED

    def __init__(self, text: str = "Leader election not needed for topic partition.") -> None:
        super().__init__(text)


class PreferredLeaderNotAvailable(KafkaError):
    code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE

    def __init__(self, text: str = "The preferred leader was not available.") -> None:
        super().__init__(text)


class EligibleLeadersNotAvailable(KafkaError):
    code = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE

    def __init__(self, text: str = "Eligible topic partition leaders are not available.") -> None:
        super().__init__(text)
