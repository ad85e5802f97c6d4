"""Single requests to the brokers of a cluster, each over its own short connection. Blocking.

For requests that the Python binding of librdkafka lacks, and to examine one broker without retries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kafkaesque.admin import CLIENT_ID
from kafkaesque.admin.errors import AdminError, BrokerUnavailable
from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.security import PLAINTEXT, InvalidSecurity, Security
from kafkaesque.model.address import Address
from kafkaesque.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaesque.wire.messages.metadata import MetadataRequest, MetadataResponse
from kafkaesque.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kafkaesque.wire.table import Request, Response

R = TypeVar("R", bound=Response)

BROKER_RESOURCE: Final = 4
"""Resource type of a broker in DescribeConfigs."""


class BrokerNode(NamedTuple):
    """Id and advertised address of a broker."""

    id: int
    host: str
    port: int


class BlockingAdmin:
    """Sends requests to a cluster, given its addresses and how to log in. Methods raise AdminError.

    `doing` says what a request is for; it completes the sentence "cannot ...".
    """

    def __init__(
        self, bootstrap: Sequence[Address], security: Security = PLAINTEXT, *, timeout_s: float
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        self._security = security
        self.timeout_s = timeout_s

    def metadata(self) -> MetadataResponse:
        """Brokers, the controller and all topics."""
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        return self.call_any(request, MetadataResponse, "read the cluster's metadata")

    def brokers(self) -> list[BrokerNode]:
        """The brokers that are up. Metadata may still list one that has just died."""
        return _brokers(self.metadata())

    def call_any(self, request: Request, response: type[R], doing: str) -> R:
        """Calls the first bootstrap address that answers."""
        reasons = []
        for address in self._bootstrap:
            try:
                return self._call(address, request, response, doing)
            except ConnectionLost as error:
                reasons.append(str(error))
        raise BrokerUnavailable(f"cannot {doing}: no broker answered: {'; '.join(reasons)}")

    def call_controller(self, request: Request, response: type[R], doing: str) -> R:
        """Calls the controller, or any broker if it is unknown: brokers forward to it."""
        metadata = self.metadata()
        brokers = {broker.id: broker for broker in _brokers(metadata)}
        broker = brokers.get(metadata.controller_id) or next(iter(brokers.values()), None)
        if broker is None:
            raise BrokerUnavailable(f"cannot {doing}: the cluster's metadata lists no broker")
        return self.call_broker(broker, request, response, doing)

    def call_broker(self, broker: BrokerNode, request: Request, response: type[R], doing: str) -> R:
        try:
            return self._call(Address(broker.host, broker.port), request, response, doing)
        except ConnectionLost as error:
            raise BrokerUnavailable(
                f"cannot {doing}: broker {broker.id} did not answer: {error}"
            ) from None

    def delete_offsets(
        self, coordinator: BrokerNode, group: str, topics: Mapping[str, Sequence[int]]
    ) -> tuple[int, dict[tuple[str, int], int]]:
        """Deletes committed offsets. Returns the error code of the group and of each partition."""
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index) for index in indexes
                    ],
                )
                for topic, indexes in topics.items()
            ],
        )
        doing = f"delete offsets of group '{group}'"
        answer = self.call_broker(coordinator, request, OffsetDeleteResponse, doing)
        return answer.error_code, {
            (topic.name, row.partition_index): row.error_code
            for topic in answer.topics
            for row in topic.partitions
        }

    def _call(self, address: Address, request: Request, response: type[R], doing: str) -> R:
        try:
            with BlockingConnection(
                address, self._security, timeout_s=self.timeout_s, client_id=CLIENT_ID
            ) as connection:
                return connection.call(request, response)
        except ApiUnsupported:
            raise AdminError(
                f"cannot {doing}: this Kafka has no such request", "use a broker of a later version"
            ) from None
        except InvalidSecurity as error:
            raise AdminError(
                f"cannot {doing}: {error}", "correct the security properties of the client"
            ) from None


def list_brokers(connection: BlockingConnection) -> list[BrokerNode]:
    """The brokers of the cluster, from Metadata without topics."""
    return _brokers(connection.call(MetadataRequest(topics=[]), MetadataResponse))


def has_broker_setting(connection: BlockingConnection, broker_id: int, name: str) -> bool:
    """Whether a broker has a setting of this name. A broker describes only itself."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker_id), configuration_keys=[name]
    )
    request = DescribeConfigsRequest(resources=[resource])
    answer = connection.call(request, DescribeConfigsResponse)
    return any(not result.error_code and result.configs for result in answer.results)


def _brokers(metadata: MetadataResponse) -> list[BrokerNode]:
    return [BrokerNode(item.node_id, item.host, item.port) for item in metadata.brokers]
