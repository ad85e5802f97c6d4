"""Checks of addresses: they resolve, accept connections, run Kafka's protocol, and advertise
reachable addresses; and of the default ports on this machine."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from kafkaesque.admin.cluster import BrokerNode, has_broker_setting, list_brokers
from kafkaesque.client.wire.blocking import BlockingConnection
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.client.wire.protocol import ApiVersions
from kafkaesque.model.address import Address
from kafkaesque.service.finding import Finding
from kafkaesque.up.ports import KAFKA_PORT, SERVICE_PORTS, SIDE_PORTS, process_listening_on
from kafkaesque.wire.messages.describe_configs import DescribeConfigsRequest

CLIENT_ID = "kafkaesque-cli"
LEADER_AND_ISR = 4
"""Key of an API that Apache Kafka 4.0 removed."""
OUR_SETTING = "flush"
"""A broker setting that only Kafkaesque has."""
NODES_ASKED_MAX = 5

DEFAULT_PORTS = {
    KAFKA_PORT: "Kafka",
    SIDE_PORTS["coordination-listen"]: "coordination",
    SIDE_PORTS["text-listen"]: "text protocol",
    **{port: service.what for port, service in SERVICE_PORTS.items()},
}
"""The ports of `kafkaesque up` with one broker."""


@dataclass(frozen=True)
class ClusterAnswer:
    """The API versions and brokers that a Kafka reported."""

    versions: ApiVersions
    brokers: list[BrokerNode]


def guess_software(versions: ApiVersions, *, has_our_setting: bool) -> str:
    """A name for the software, guessed from its features and APIs."""
    features = versions.features
    if has_our_setting:
        return "Kafkaesque"
    if "metadata.version" in features:
        newest = "4.x" if LEADER_AND_ISR not in versions.apis else "3.x"
        return f"Apache Kafka {newest} (metadata.version up to {features['metadata.version'][1]})"
    return "a Kafka"


def examine_address(host: str, port: int, timeout_s: float) -> tuple[Finding, ClusterAnswer | None]:
    """Check one bootstrap address, as far as it can be reached without credentials."""
    address = f"{host}:{port}"
    area = "bootstrap"
    try:
        with _connect(host, port, timeout_s) as kafka:
            versions = kafka.protocol.api_versions
            answer = ClusterAnswer(versions, list_brokers(kafka))
            # A broker describes only its own settings, and the broker at this address is unknown.
            ours = DescribeConfigsRequest.API_KEY in versions.apis and any(
                has_broker_setting(kafka, broker.id, OUR_SETTING)
                for broker in answer.brokers[:NODES_ASKED_MAX]
            )
    except (ConnectionLost, ApiUnsupported) as error:
        if isinstance(error.__cause__, socket.gaierror):
            text = f"{address}: the name {host} does not resolve"
            fix = "correct the name, or add it to DNS or /etc/hosts"
            return Finding(area, "fail", text, fix), None
        if isinstance(error.__cause__, ConnectionRefusedError):
            text = f"{address}: nothing is listening there"
            fix = f"start a broker: kafkaesque broker --data DIR --listen {address}"
            return Finding(area, "fail", text, fix), None
        return _not_kafka(host, port, error.__cause__ or error, timeout_s), None
    facts = {
        "address": address,
        "software": guess_software(versions, has_our_setting=ours),
        "apis": {str(key): list(range_) for key, range_ in sorted(versions.apis.items())},
        "features": {name: list(range_) for name, range_ in versions.features.items()},
        "process": process_listening_on(port) if _is_local(host) else None,
    }
    text = f"{address} answers: {facts['software']}, {len(versions.apis)} APIs"
    return Finding(area, "ok", text, facts=facts), answer


def _connect(host: str, port: int, timeout_s: float) -> BlockingConnection:
    return BlockingConnection(Address(host, port), timeout_s=timeout_s, client_id=CLIENT_ID)


def _not_kafka(host: str, port: int, error: BaseException, timeout_s: float) -> Finding:
    address, area = f"{host}:{port}", "bootstrap"
    match detect_protocol(host, port, timeout_s):
        case "tls":
            return Finding(
                area,
                "fail",
                f"{address} requires TLS, but the connection was plaintext",
                "add -X security.protocol=SSL (or SASL_SSL) and -X ssl.ca.location=FILE",
            )
        case "http":
            return Finding(
                area,
                "fail",
                f"{address} is an HTTP server{_owner(host, port)}, not a Kafka",
                "use the broker's Kafka port, usually 9092",
            )
        case "silent" if isinstance(error, TimeoutError):
            return Finding(
                area,
                "fail",
                f"{address} does not answer within {timeout_s:g} s",
                "check for a firewall or a stopped process, or raise --timeout",
            )
    return Finding(
        area,
        "fail",
        f"{address} is not a Kafka{_owner(host, port)}: {error}",
        "stop that process, or use another port; a SASL listener needs -X security.protocol",
    )


def _owner(host: str, port: int) -> str:
    process = process_listening_on(port) if _is_local(host) else None
    return f" ({process})" if process else ""


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")  # noqa: S104


def detect_protocol(host: str, port: int, timeout_s: float) -> Literal["tls", "http", "silent"]:
    """The protocol of an address that does not run Kafka's; "silent" if it is neither TLS nor HTTP."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), timeout=min(timeout_s, 2)) as raw,
            context.wrap_socket(raw),
        ):
            return "tls"
    except OSError:
        pass
    try:
        with socket.create_connection((host, port), timeout=min(timeout_s, 2)) as raw:
            raw.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return "http" if raw.recv(5) == b"HTTP/" else "silent"
    except OSError:
        return "silent"


def examine_advertised(
    bootstrap: str, brokers: list[BrokerNode], timeout_s: float
) -> Iterator[Finding]:
    """Check advertised addresses: clients connect to them after the bootstrap."""
    for node in brokers:
        address = f"{node.host}:{node.port}"
        problem, fix = None, ""
        try:
            with _connect(node.host, node.port, timeout_s):
                pass
        except ConnectionLost as error:
            match error.__cause__:
                case socket.gaierror():
                    problem = f"the name {node.host} does not resolve here"
                    fix = f"make it resolve (DNS, /etc/hosts), or {_readvertise(bootstrap)}"
                case OSError() as cause:
                    problem = (cause.strerror or str(cause)).lower()
                    fix = f"allow connections to {address}, or {_readvertise(bootstrap)}"
                case cause:
                    problem, fix = str(cause), _readvertise(bootstrap)
        if problem is None:
            yield Finding("listeners", "ok", f"broker {node.id} advertises {address}: reachable")
        else:
            yield Finding(
                "listeners",
                "fail",
                f"{bootstrap} answers, but broker {node.id} advertises {address}: {problem}",
                fix,
            )


def _readvertise(bootstrap: str) -> str:
    return (
        f"make the broker advertise an address that clients can reach: "
        f"--set advertised.listeners=PLAINTEXT://{bootstrap}"
    )


def examine_default_ports(bootstrap_ports: set[int]) -> Iterator[Finding]:
    """Check that the default ports of `kafkaesque up` are free."""
    taken = []
    for port, purpose in DEFAULT_PORTS.items():
        if port in bootstrap_ports or not _is_taken(port):
            continue
        owner = process_listening_on(port)
        taken.append(port)
        yield Finding(
            "ports",
            "warn",
            f"port {port} ({purpose}) is in use{f' by {owner}' if owner else ''}",
            "stop that process, or choose another port for the service (0 picks a free one)",
        )
    if not taken:
        ports = ", ".join(str(port) for port in DEFAULT_PORTS if port not in bootstrap_ports)
        yield Finding("ports", "ok", f"default ports are free: {ports}")


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False
