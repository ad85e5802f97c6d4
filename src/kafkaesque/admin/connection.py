"""A connection to any Kafka by librdkafka, with errors as AdminError.

librdkafka retries forever and logs to the terminal meanwhile; an operation must fail soon and say why. So
`ClusterConnection` probes the sockets first, silences the log, and keeps the last background error for
the error message.
"""

from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from kafkaesque.admin import CLIENT_ID
from kafkaesque.admin.errors import (
    FIXES,
    MISSING,
    AdminError,
    BrokerUnavailable,
    ClusterUnreachable,
    ResourceNotFound,
)
from kafkaesque.admin.librdkafka_types import TopicDescription
from kafkaesque.client.kafka_errors import UNREACHABLE
from kafkaesque.client.wire.address import parse_bootstrap

if TYPE_CHECKING:
    from kafkaesque.admin.cluster import BlockingAdmin
    from kafkaesque.client.wire.pool import ConnectionPool
    from kafkaesque.client.wire.security import Security

T = TypeVar("T")

PROBE_TIMEOUT_S_MAX = 3.0
"""A TCP handshake that takes longer means a dropped packet, not a slow broker."""

_MISSING = MISSING | {KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error inside a KafkaException; the library raises a bare string in a few places."""
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(inner))


class ClusterConnection:
    """Address and client properties of a cluster. Clients are created on first use.

    Raises ValueError if `bootstrap` is not a list of addresses. Methods raise AdminError; `doing` says
    what an operation is for and completes the sentence "cannot ...".
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.properties = dict(properties)
        self.timeout_s = timeout_s
        self.addresses = parse_bootstrap(bootstrap)
        self._last_error: KafkaError | None = None

    def with_timeout(self, timeout_s: float) -> Self:
        """A second connection to the same cluster."""
        return type(self)(self.bootstrap, self.properties, timeout_s)

    @cached_property
    def admin(self) -> AdminClient:
        self.reach()
        # The AdminClient calls `error_cb` only when it is polled, and nothing polls it.
        return self._construct(AdminClient, {})

    @cached_property
    def cluster(self) -> BlockingAdmin:
        """For requests that librdkafka lacks."""
        # Imported late: an operation that does not need the wire protocol starts faster without it.
        from kafkaesque.admin.cluster import BlockingAdmin

        self.reach()
        return BlockingAdmin(self.addresses, self._security(), timeout_s=self.timeout_s)

    def pool(self) -> ConnectionPool:
        """For requests that librdkafka lacks, to several brokers at once. The caller closes it."""
        from kafkaesque.client.wire.pool import ConnectionPool
        from kafkaesque.client.wire.security import InvalidSecurity

        self.reach()
        try:
            return ConnectionPool(self.addresses, self._security(), client_id=CLIENT_ID)
        except InvalidSecurity as error:
            raise self._invalid_security(error) from None

    def _security(self) -> Security:
        from kafkaesque.client.wire.security import InvalidSecurity, read_security

        try:
            return read_security(self.properties)
        except InvalidSecurity as error:
            raise self._invalid_security(error) from None

    def _invalid_security(self, error: Exception) -> AdminError:
        return AdminError(
            f"cannot connect to {self.bootstrap}: {error}",
            "correct the security properties of the client",
        )

    def producer(self, **properties: Any) -> Producer:
        self.reach()
        return self._construct(Producer, _dotted(properties))

    def consumer(self, **properties: Any) -> Consumer:
        self.reach()
        return self._construct(Consumer, _dotted(properties))

    def _construct(self, client: type[T], extra: Mapping[str, Any]) -> T:
        """Properties of the user override those of the command, which override our defaults."""
        config: dict[str, Any] = {
            "client.id": CLIENT_ID,
            "log_level": 0,
            "socket.connection.setup.timeout.ms": 5000,
            "error_cb": self._remember,
            **extra,
            **self.properties,
            "bootstrap.servers": self.bootstrap,
        }
        if "debug" in self.properties and "log_level" not in self.properties:
            del config["log_level"]
        try:
            return client(config)  # type: ignore[call-arg]
        except KafkaException as exception:
            raise AdminError(
                f"the client rejected its settings: {kafka_error(exception).str()}",
                "librdkafka's names are listed at "
                "https://github.com/confluentinc/librdkafka/blob/master/CONFIGURATION.md",
            ) from None

    def _remember(self, error: KafkaError) -> None:
        # "All brokers down" follows the error with the cause; keep the cause.
        if error.code() != KafkaError._ALL_BROKERS_DOWN or self._last_error is None:
            self._last_error = error

    def reach(self) -> None:
        """Fail at once, with the reason, if no bootstrap address accepts a connection."""
        reasons = []
        for host, port in self.addresses:
            try:
                with socket.create_connection(
                    (host, port), timeout=min(self.timeout_s, PROBE_TIMEOUT_S_MAX)
                ):
                    return
            except socket.gaierror:
                reasons.append(f"{host} does not resolve to an address")
            except TimeoutError:
                reasons.append(f"{host}:{port} does not answer")
            except OSError as error:
                reasons.append(f"{host}:{port}: {(error.strerror or str(error)).lower()}")
        raise ClusterUnreachable(f"cannot reach {self.bootstrap}: {'; '.join(reasons)}")

    def wait(self, future: concurrent.futures.Future[T], doing: str) -> T:
        """Waits for an admin operation and returns its result."""
        error = self.error_of(future)
        if error is not None:
            raise self.admin_error(error, doing)
        return future.result()

    def error_of(self, future: concurrent.futures.Future[T]) -> KafkaError | None:
        """Waits for an admin operation and returns its error, or None."""
        try:
            # librdkafka enforces the request timeout; this one is a fallback.
            future.result(self.timeout_s + 5)
        except KafkaException as exception:
            return kafka_error(exception)
        except concurrent.futures.TimeoutError:
            return KafkaError(KafkaError._TIMED_OUT)
        return None

    def admin_error(self, error: KafkaError, doing: str) -> AdminError:
        """The AdminError for a librdkafka error."""
        text, fix = error.str(), FIXES.get(error.code())
        if error.code() in _MISSING:
            return ResourceNotFound(f"cannot {doing}: {text}", fix)
        if error.code() in UNREACHABLE:
            cause = self._last_error.str() if self._last_error else text
            return BrokerUnavailable(
                f"cannot {doing}: no answer from {self.bootstrap} ({cause})",
                self.diagnosis_hint,
            )
        return AdminError(f"cannot {doing}: {text} ({error.name()})", fix)

    @property
    def diagnosis_hint(self) -> str:
        """How to find out why the cluster does not answer."""
        return f"`kafkaesque doctor -b {self.bootstrap}` shows why"

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Descriptions of topics; never creates one. Raises ResourceNotFound with the missing names."""
        futures = self.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self.timeout_s
        )
        found: dict[str, TopicDescription] = {}
        missing = []
        for name, future in futures.items():
            try:
                found[name] = self.wait(future, f"describe topic '{name}'")
            except ResourceNotFound:
                missing.append(name)
        if missing:
            listed = ", ".join(f"'{name}'" for name in missing)
            plural = "topics" if len(missing) > 1 else "topic"
            raise ResourceNotFound(
                f"there is no {plural} {listed}",
                f"`kafkaesque topic create {' '.join(missing)}` creates it; "
                "`kafkaesque topic list` lists the topics",
            )
        return found

    def topic_names(self) -> list[str]:
        return sorted(self.metadata().topics)

    def metadata(self) -> Any:
        """Brokers and topics of the cluster (confluent_kafka.admin.ClusterMetadata)."""
        try:
            return self.admin.list_topics(timeout=self.timeout_s)
        except KafkaException as exception:
            raise self.admin_error(kafka_error(exception), "read the cluster's metadata") from None


def _dotted(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as librdkafka's property names: `group_id` becomes `group.id`."""
    return {name.replace("_", "."): value for name, value in properties.items()}
