"""The API keys, the versions that have tables, and the request header.

The versions that a broker supports are decided by its handlers: a handler may serve fewer versions
than there are tables for, or announce more (Produce does, for compatibility with old clients).
"""

from __future__ import annotations

import importlib
import pkgutil
import struct
from enum import IntEnum
from typing import NamedTuple

from kafkaesque.model.errors import ProtocolError
from kafkaesque.model.limits import TAGGED_FIELDS_MAX
from kafkaesque.wire import messages, native
from kafkaesque.wire.bounds import skip_tags
from kafkaesque.wire.table import Message, Request, Response


class ApiKey(IntEnum):
    """Kafka 4.3's request types."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


# Adding a module to `messages` adds an API: all tables in the package are discovered here.
_MODULES = [
    importlib.import_module(f"{messages.__name__}.{found.name}")
    for found in pkgutil.iter_modules(messages.__path__)
]


def _index(base: type[Message]) -> dict[int, type[Message]]:
    return {
        value.API_KEY: value
        for module in _MODULES
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.API_KEY >= 0
    }


REQUESTS: dict[int, type[Request]] = _index(Request)  # type: ignore[assignment]
"""Request classes by API key, for every API that has tables."""
RESPONSES: dict[int, type[Response]] = _index(Response)  # type: ignore[assignment]

_RULES = {key: (*cls.VERSIONS, cls.FLEXIBLE_SINCE) for key, cls in REQUESTS.items()}

_unpack_fixed = struct.Struct(">hhih").unpack_from
_make_tuple = tuple.__new__

REQUEST_HEADER_BYTES_MIN = 10
"""API key, version, correlation id, and the length of the client id."""


class RequestHeader(NamedTuple):
    """A decoded request header. `body_position` is where the body starts in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


class UnsupportedRequest(ProtocolError):
    """A request with a valid header for an API or version that has no table.

    The connection is closed, except that an ApiVersions request of an unknown version gets
    UNSUPPORTED_VERSION in a response of version 0 (KIP-511), which needs the correlation id.
    """

    def __init__(self, api_key: int, api_version: int, correlation_id: int, text: str) -> None:
        super().__init__(text)
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class UnknownApiKey(UnsupportedRequest):
    """The API key is unknown or not supported."""


class UnsupportedVersion(UnsupportedRequest):
    """The API is supported, but not in this version."""


def decode_request_header(frame: memoryview) -> RequestHeader:
    """Decodes request header v1 or v2, depending on the API version. `frame` excludes the length."""
    try:
        api_key, api_version, correlation_id, client_id_length = _unpack_fixed(frame)
        rule = _RULES.get(api_key)
        if rule is None or not rule[0] <= api_version <= rule[1]:
            raise _unsupported(api_key, api_version, correlation_id)
        position = REQUEST_HEADER_BYTES_MIN
        client_id = None
        if client_id_length >= 0:
            stop = position + client_id_length
            if stop > len(frame):
                raise ProtocolError(f"client_id: length {client_id_length} exceeds the frame")
            client_id = frame[position:stop].tobytes().decode()
            position = stop
        elif client_id_length != -1:
            raise ProtocolError(f"client_id: negative length {client_id_length}")
        if api_version >= rule[2]:
            # Almost always the single byte 0, because the header defines no tagged fields.
            if frame[position]:
                position, _ = skip_tags(frame, position, len(frame), TAGGED_FIELDS_MAX)
            else:
                position += 1
    except (struct.error, IndexError) as error:
        raise ProtocolError("request header is cut short") from error
    except UnicodeDecodeError as error:
        raise ProtocolError("client_id is not UTF-8") from error
    # Like RequestHeader(...), without its Python-level constructor: this runs for every request.
    return _make_tuple(RequestHeader, (api_key, api_version, correlation_id, client_id, position))


decode_request_header = native.header_reader(decode_request_header, RequestHeader, _RULES)


def _unsupported(api_key: int, api_version: int, correlation_id: int) -> UnsupportedRequest:
    if api_key not in REQUESTS:
        text = f"unknown API key {api_key}"
        return UnknownApiKey(api_key, api_version, correlation_id, text)
    low, high = REQUESTS[api_key].VERSIONS
    text = f"{ApiKey(api_key).name} version {api_version} is not supported, only {low} to {high}"
    return UnsupportedVersion(api_key, api_version, correlation_id, text)
