"""The settings of a gateway. The command line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT, DOUBLE, BOOLEAN, STRING, LIST = (
    SettingType.INT,
    SettingType.DOUBLE,
    SettingType.BOOLEAN,
    SettingType.STRING,
    SettingType.LIST,
)
_KIB = 1024


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """Settings of a gateway."""

    zookeeper_connect: str = setting(
        "zookeeper.connect", STRING, "",
        "ZooKeeper, where gateways register and routes are stored. Empty: this gateway is alone.",
        ours=True,
    )  # fmt: skip
    advertised_listener: str = setting(
        "advertised.listener", STRING, "",
        "HOST:PORT that clients connect to; empty: the listening address.",
        ours=True,
    )  # fmt: skip
    listen_backlog: int = setting(
        "listen.backlog", INT, 4096,
        "Connections that may wait to be accepted. asyncio's 100 would prolong a reconnect storm.",
        at_least=1, at_most=65_535, ours=True,
    )  # fmt: skip
    connections_max: int = setting(
        "connections.max", INT, 100_000, "Connections beyond this are closed as busy.",
        at_least=1, ours=True,
    )  # fmt: skip
    connections_per_user_max: int = setting(
        "connections.per.user.max", INT, 16, "Connections of one user to this gateway.",
        at_least=1, ours=True,
    )  # fmt: skip
    subscriptions_max: int = setting(
        "subscriptions.max", INT, 64, "Rooms that one connection may subscribe to.",
        at_least=0, ours=True,
    )  # fmt: skip
    frame_max_bytes: int = setting(
        "frame.max.bytes", INT, 64 * _KIB, "The maximum size of a client's message.",
        at_least=_KIB, at_most=512 * _KIB, ours=True,
    )  # fmt: skip
    write_buffer_bytes: int = setting(
        "write.buffer.bytes", INT, 64 * _KIB,
        "Bytes buffered for one slow client. Beyond this, its events stay in the log until it reads.",
        at_least=_KIB, at_most=16_384 * _KIB, ours=True,
    )  # fmt: skip
    slow_timeout_ms: int = setting(
        "slow.timeout.ms", INT, 120_000,
        "A client that has not read pending data for this long is closed.",
        at_least=100, ours=True,
    )  # fmt: skip
    heartbeat_ms: int = setting(
        "heartbeat.ms", INT, 25_000,
        "How often a client must send something; it is closed after 2.5 intervals of silence.",
        at_least=100, ours=True,
    )  # fmt: skip
    auth_timeout_ms: int = setting(
        "auth.timeout.ms", INT, 10_000,
        "A connection that has not authenticated after this time is closed.",
        at_least=100, ours=True,
    )  # fmt: skip
    send_rate: float = setting(
        "send.rate", DOUBLE, 50.0, "Commands and requests per second and user, in the long run.",
        at_least=0.1, ours=True,
    )  # fmt: skip
    send_burst: int = setting(
        "send.burst", INT, 100, "Commands and requests that a user may send at once.",
        at_least=1, ours=True,
    )  # fmt: skip
    in_flight_max: int = setting(
        "in.flight.max", INT, 64, "Commands and requests of one connection that may be in flight.",
        at_least=1, ours=True,
    )  # fmt: skip
    ask_timeout_ms: int = setting(
        "ask.timeout.ms", INT, 10_000, "A request that is not answered after this time fails.",
        at_least=10, ours=True,
    )  # fmt: skip
    ws_origins: tuple[str, ...] = setting(
        "ws.origins", LIST, (),
        "Origins, besides the same host, that may open a WebSocket; `*` allows any.",
        ours=True,
    )  # fmt: skip
    ws_hosts: tuple[str, ...] = setting(
        "ws.hosts", LIST, (),
        "Host names of this gateway, besides localhost and IP addresses, whose pages may open a "
        "WebSocket as the same host.",
        ours=True,
    )  # fmt: skip
    proxy_protocol: bool = setting(
        "proxy.protocol", BOOLEAN, False,
        "Connections from trusted proxies begin with a PROXY header (v1 or v2).",
        ours=True,
    )  # fmt: skip
    proxy_trusted: tuple[str, ...] = setting(
        "proxy.trusted", LIST, ("127.0.0.0/8", "::1/128"),
        "Networks whose PROXY header and X-Forwarded-For are trusted.",
        ours=True,
    )  # fmt: skip
    tls_certificate: str = setting(
        "tls.certificate", STRING, "",
        "PEM file. If set, all connections use TLS, and a restart drains instead of handing over.",
        ours=True,
    )  # fmt: skip
    tls_key: str = setting("tls.key", STRING, "", "PEM file of the certificate's key.", ours=True)
    jwt_algorithms: tuple[str, ...] = setting(
        "auth.jwt.algorithms", LIST, (),
        "Accepted signature algorithms of other issuers; empty: only the gateways' own tokens.",
        choices=("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256",
                 "ES256", "ES384", "ES512", "EdDSA"),
        ours=True,
    )  # fmt: skip
    jwt_key: str = setting(
        "auth.jwt.key.file", STRING, "", "File with the issuer's secret (HS) or public key (PEM).",
        ours=True,
    )  # fmt: skip
    jwt_jwks: str = setting(
        "auth.jwt.jwks", STRING, "", "File or https URL of a JWKS, read again for an unknown `kid`.",
        ours=True,
    )  # fmt: skip
    jwt_audience: str = setting(
        "auth.jwt.audience", STRING, "", "Required `aud`; empty: not checked.", ours=True,
    )  # fmt: skip
    jwt_issuer: str = setting(
        "auth.jwt.issuer", STRING, "", "Required `iss`; empty: not checked.", ours=True,
    )  # fmt: skip
    passwords: bool = setting(
        "auth.passwords", BOOLEAN, True, "Whether clients may log in with name and password.", ours=True,
    )  # fmt: skip
    secret_file: str = setting(
        "auth.secret.file", STRING, "",
        "Key of the tokens that gateways issue; all gateways need the same file. Empty: created in "
        "the data directory.",
        ours=True,
    )  # fmt: skip
    token_ttl_ms: int = setting(
        "auth.token.ttl.ms", INT, 3_600_000, "How long an issued token is valid.",
        at_least=1000, ours=True,
    )  # fmt: skip
    drain_batch: int = setting(
        "drain.batch", INT, 500, "Clients sent away at once during a drain.", at_least=1, ours=True,
    )  # fmt: skip
    drain_interval_ms: int = setting(
        "drain.interval.ms", INT, 250, "Time between two batches of a drain.", at_least=0, ours=True,
    )  # fmt: skip
    drain_settle_ms: int = setting(
        "drain.settle.ms", INT, 0,
        "Time between not ready and the first batch, so that load balancers notice.",
        at_least=0, ours=True,
    )  # fmt: skip
    drain_grace_ms: int = setting(
        "drain.grace.ms", INT, 5000, "Time that clients have to leave by themselves.", at_least=0, ours=True,
    )  # fmt: skip
    interest_linger_ms: int = setting(
        "interest.linger.ms", INT, 60_000,
        "How long a partition is still read after its last user left.", at_least=0, ours=True,
    )  # fmt: skip


GATEWAY_SETTINGS: Mapping[str, Setting] = settings_of(GatewayConfig)


def gateway_config(values: Mapping[str, str]) -> GatewayConfig:
    """Raises InvalidConfig, which names the unknown or invalid setting."""
    return typed_settings(GatewayConfig, values)
