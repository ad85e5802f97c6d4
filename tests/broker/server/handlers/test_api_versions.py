from __future__ import annotations

import pytest
from tests.broker.server.local_broker import HANDLERS, LocalBroker, every_version

from kafkaesque.broker.server.handlers.api_versions import (
    OTHER_SOFTWARE,
    SOFTWARE_KINDS_MAX,
    unsupported_version,
)
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.codec import decode, encode
from kafkaesque.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


def ask(broker: LocalBroker, name: str = "librdkafka", version: str = "2.16.1") -> int:
    request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
    answer = broker.ask(request, 4)
    return int(answer.error_code)


@pytest.mark.parametrize("version", every_version(ApiVersionsRequest))
def test_answer_has_the_version_range_of_every_handler(broker: LocalBroker, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = broker.ask(request, version)
    advertised = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
    assert answer.error_code == ErrorCode.NONE
    assert advertised.keys() == HANDLERS.keys()
    assert all(
        advertised[key] == (found.advertised_from, found.versions[1])
        for key, found in HANDLERS.items()
    )


@pytest.mark.parametrize(("version", "supported"), [(3, []), (4, [("transaction.version", 0, 2)])])
def test_transactions_of_the_new_flow_are_promised(
    broker: LocalBroker, version: int, supported: list[tuple[str, int, int]]
) -> None:
    """A minimum of 0 has Java clients refuse the answer of version 3."""
    request = ApiVersionsRequest(client_software_name="x", client_software_version="1")
    answer = broker.ask(request, version)
    features = [(one.name, one.min_version, one.max_version) for one in answer.supported_features]
    assert features == supported
    (final,) = answer.finalized_features
    assert (final.name, final.max_version_level) == ("transaction.version", 2)
    assert answer.finalized_features_epoch == 0


@pytest.mark.parametrize("name", ["", "a b", "-a", "a.", "a_b", "é", "a/b"])
def test_malformed_software_name_is_refused_without_ranges(broker: LocalBroker, name: str) -> None:
    assert ask(broker, name=name) == ErrorCode.INVALID_REQUEST
    assert ask(broker, version=name) == ErrorCode.INVALID_REQUEST
    assert broker.context.stats.clients == {}


@pytest.mark.parametrize("name", ["a", "a-b", "a.b", "1a", "A" * 300])
def test_wellformed_software_name_is_taken(broker: LocalBroker, name: str) -> None:
    assert ask(broker, name=name) == ErrorCode.NONE


def test_clients_are_counted_by_software(broker: LocalBroker) -> None:
    for _ in range(2):
        ask(broker)
    ask(broker, "apache-kafka-java", "4.3.0")
    assert broker.context.stats.clients == {
        ("librdkafka", "2.16.1"): 2,
        ("apache-kafka-java", "4.3.0"): 1,
    }


def test_invented_software_names_cannot_make_the_count_grow_for_ever(broker: LocalBroker) -> None:
    for number in range(SOFTWARE_KINDS_MAX + 10):
        ask(broker, f"x{number}")
    clients = broker.context.stats.clients
    assert len(clients) == SOFTWARE_KINDS_MAX + 1
    assert clients[OTHER_SOFTWARE] == 10


def test_unknown_version_is_answered_with_the_range_of_this_api_in_version_0(
    broker: LocalBroker,
) -> None:
    body = b"".join(encode(unsupported_version(broker.context), 0))
    answer = decode(ApiVersionsResponse, memoryview(body), 0)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    ((key, low, high),) = (
        (item.api_key, item.min_version, item.max_version) for item in answer.api_keys
    )
    assert (key, low, high) == (18, 0, 4)
