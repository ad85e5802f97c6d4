"""Errors of administrative operations: a sentence for the operator, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafkaesque.client.wire.errors import error_name
from kafkaesque.model.errors import ErrorCode

MISSING: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.RESOURCE_NOT_FOUND,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    }
)
"""Error codes for a topic, partition, group or broker that does not exist."""

_LIST_TOPICS = (
    "`kafkaesque topic list` lists the topics, `kafkaesque topic describe` the partitions"
)
_LIST_BROKERS = "`kafkaesque broker-admin brokers` lists the brokers"
_STOP_CONSUMERS = "stop the group's consumers, wait for their sessions to expire, and try again"
_TRY_AGAIN = "the cluster is electing a leader: try again in a few seconds"
_ASK_FOR_PERMISSION = "log in as a user who may do this, or have its ACLs changed"

FIXES: Final[Mapping[int, str]] = {
    ErrorCode.BROKER_ID_NOT_REGISTERED: _LIST_BROKERS,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _ASK_FOR_PERMISSION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _TRY_AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _TRY_AGAIN,
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "start a broker that has an in-sync replica; an "
    "unclean election accepts any replica, but may lose records",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: _ASK_FOR_PERMISSION,
    ErrorCode.GROUP_ID_NOT_FOUND: "`kafkaesque group list` lists the groups",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "stop the group's consumers of this topic first",
    ErrorCode.INVALID_CONFIG: "`kafkaesque config list` documents every setting and its values",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions must be at least 1 and can only grow",
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: _LIST_BROKERS,
    ErrorCode.INVALID_REPLICATION_FACTOR: f"each replica needs its own broker: {_LIST_BROKERS}",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "use at most 249 letters, digits, dots, underscores and "
    "hyphens",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker's disk is full or failing: see the broker's log",
    ErrorCode.LEADER_NOT_AVAILABLE: _TRY_AGAIN,
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: "`kafkaesque broker-admin reassignments` lists the "
    "reassignments in progress",
    ErrorCode.NON_EMPTY_GROUP: _STOP_CONSUMERS,
    ErrorCode.NOT_CONTROLLER: _TRY_AGAIN,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _TRY_AGAIN,
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "start the broker of the first replica, and wait until "
    "`kafkaesque topic describe` shows it in sync",
    ErrorCode.TOPIC_ALREADY_EXISTS: "`kafkaesque topic describe` shows it, "
    "`kafkaesque topic alter` changes it",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: _ASK_FOR_PERMISSION,
    ErrorCode.UNKNOWN_MEMBER_ID: _STOP_CONSUMERS,
    ErrorCode.UNKNOWN_TOPIC_ID: _LIST_TOPICS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _LIST_TOPICS,
}
"""What to do about Kafka's error codes, where that is not obvious from the code."""


class AdminError(Exception):
    """The operation was not carried out. `fix` says what to do, if there is a general answer."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message)
        self.fix = fix


class BrokerUnavailable(AdminError):
    """A broker did not answer. The operation may have been carried out."""


class ClusterUnreachable(BrokerUnavailable):
    """No bootstrap address accepted a connection. Nothing was sent."""


class ResourceNotFound(AdminError):
    """The topic, partition, group, broker or transaction does not exist."""


def refusal(code: int, message: str | None, doing: str) -> AdminError:
    """The error for one of Kafka's error codes. `doing` completes the sentence "cannot ..."."""
    kind = ResourceNotFound if code in MISSING else AdminError
    name = error_name(code)
    text = f"cannot {doing}: {message} ({name})" if message else f"cannot {doing}: {name}"
    return kind(text, FIXES.get(code))
