"""The connection of a command to any Kafka: librdkafka clients, with errors turned into `CommandFailure`s.

librdkafka retries forever and logs to the terminal meanwhile; a command must fail soon and say why. So
`Connection` probes the sockets first, silences the log, and keeps the last background error for the
error message.
"""

from __future__ import annotations

import concurrent.futures
import socket
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection
from confluent_kafka.admin import AdminClient

from kafkaesque.cli.admin_types import TopicDescription
from kafkaesque.cli.failures import CannotConnect, CommandFailure, TargetNotFound, usage

if TYPE_CHECKING:
    from kafkaesque.admin.cluster import BlockingAdmin
    from kafkaesque.client.wire.address import Address
    from kafkaesque.client.wire.pool import ConnectionPool
    from kafkaesque.client.wire.security import Security

T = TypeVar("T")

CLIENT_ID = "kafkaesque-cli"
DEFAULT_PORT = 9092
PROBE_TIMEOUT_S_MAX = 3.0
"""A TCP handshake that takes longer means a dropped packet, not a slow broker."""

_UNREACHABLE = frozenset(
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
DISK_HINT = "the broker's disk is full or failing: see the broker's log"
_HINTS = {
    KafkaError.INVALID_CONFIG: "`kafkaesque config list` documents every setting and its values",
    KafkaError.INVALID_REPLICATION_FACTOR: "each replica needs its own broker: "
    "`kafkaesque broker-admin brokers` lists the brokers",
    KafkaError.KAFKA_STORAGE_ERROR: DISK_HINT,
    KafkaError.TOPIC_ALREADY_EXISTS: "`kafkaesque topic describe` shows it, "
    "`kafkaesque topic alter` changes it",
}
_MISSING = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError.GROUP_ID_NOT_FOUND,
        KafkaError.RESOURCE_NOT_FOUND,
    }
)


def split_address(address: str) -> tuple[str, int]:
    """Host and port of one bootstrap address; `SCHEME://` and a missing port are tolerated."""
    text = address.strip().rpartition("://")[2]
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port_text = rest.removeprefix(":")
    elif text.count(":") > 1:
        host, port_text = text, ""
    else:
        host, _, port_text = text.partition(":")
    if not host or not (port_text.isdigit() or port_text == ""):
        raise usage(f"'{address}' is not an address: write HOST:PORT, as in 127.0.0.1:9092.")
    return host, int(port_text) if port_text else DEFAULT_PORT


def kafka_error(exception: KafkaException) -> KafkaError:
    """The error inside a KafkaException; the library raises a bare string in a few places."""
    inner = exception.args[0] if exception.args else None
    return inner if isinstance(inner, KafkaError) else KafkaError(KafkaError._FAIL, str(inner))


class Connection:
    """Address and client properties of a cluster. Clients are created on first use."""

    def __init__(self, bootstrap: str, properties: Mapping[str, str], timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self.properties = dict(properties)
        self.timeout_s = timeout_s
        self._last_error: KafkaError | None = None

    @cached_property
    def admin(self) -> AdminClient:
        self.reach()
        # The AdminClient calls `error_cb` only when it is polled, and nothing polls it.
        return self._construct(AdminClient, {})

    @cached_property
    def cluster(self) -> BlockingAdmin:
        """For requests that librdkafka lacks."""
        from kafkaesque.admin.cluster import BlockingAdmin

        self.reach()
        return BlockingAdmin(self._addresses(), self._security(), timeout_s=self.timeout_s)

    def pool(self) -> ConnectionPool:
        """For requests that librdkafka lacks, to several brokers at once. The caller closes it."""
        from kafkaesque.client.wire.pool import ConnectionPool
        from kafkaesque.client.wire.security import InvalidSecurity

        self.reach()
        try:
            return ConnectionPool(self._addresses(), self._security(), client_id=CLIENT_ID)
        except InvalidSecurity as error:
            raise CommandFailure(str(error)) from None

    def _addresses(self) -> list[Address]:
        from kafkaesque.client.wire.address import Address

        return [Address(*split_address(text)) for text in self.bootstrap.split(",")]

    def _security(self) -> Security:
        from kafkaesque.client.wire.security import InvalidSecurity, read_security

        try:
            return read_security(self.properties)
        except InvalidSecurity as error:
            raise CommandFailure(str(error)) from None

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
            raise CommandFailure(
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
        for address in self.bootstrap.split(","):
            host, port = split_address(address)
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
        raise CannotConnect(
            f"cannot reach {self.bootstrap}: {'; '.join(reasons)}",
            "start a broker with `kafkaesque broker`, or set another address with --bootstrap-server "
            "(or KAFKAESQUE_BOOTSTRAP); `kafkaesque doctor` shows details",
        )

    def wait(self, future: concurrent.futures.Future[T], doing: str) -> T:
        """The result of an admin operation; `doing` completes the sentence "cannot ..."."""
        error = self.error_of(future)
        if error is not None:
            self.fail(error, doing)
        return future.result()

    def error_of(self, future: concurrent.futures.Future[T]) -> KafkaError | None:
        """Wait for an admin operation; returns its error, or None."""
        try:
            # librdkafka enforces the request timeout; this one is a fallback.
            future.result(self.timeout_s + 5)
        except KafkaException as exception:
            return kafka_error(exception)
        except concurrent.futures.TimeoutError:
            return KafkaError(KafkaError._TIMED_OUT)
        return None

    def fail(self, error: KafkaError, doing: str) -> NoReturn:
        raise self.failure(error, doing)

    def failure(self, error: KafkaError, doing: str) -> CommandFailure:
        """The `CommandFailure` for a librdkafka error."""
        text = error.str()
        if error.code() in _MISSING:
            return TargetNotFound(f"cannot {doing}: {text}")
        if error.code() in _UNREACHABLE:
            cause = self._last_error.str() if self._last_error else text
            return CannotConnect(
                f"cannot {doing}: no answer from {self.bootstrap} ({cause})",
                f"`kafkaesque doctor -b {self.bootstrap}` shows why; --timeout allows more time",
            )
        return CommandFailure(f"cannot {doing}: {text} ({error.name()})", _HINTS.get(error.code()))

    def describe_topics(self, names: Iterable[str]) -> dict[str, TopicDescription]:
        """Descriptions of topics; never creates one. Raises `TargetNotFound` with the missing names."""
        futures = self.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self.timeout_s
        )
        found: dict[str, TopicDescription] = {}
        missing = []
        for name, future in futures.items():
            try:
                found[name] = self.wait(future, f"describe topic '{name}'")
            except TargetNotFound:
                missing.append(name)
        if missing:
            listed = ", ".join(f"'{name}'" for name in missing)
            plural = "topics" if len(missing) > 1 else "topic"
            raise TargetNotFound(
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
            self.fail(kafka_error(exception), "read the cluster's metadata")


def _dotted(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as librdkafka's property names: `group_id` becomes `group.id`."""
    return {name.replace("_", "."): value for name, value in properties.items()}
