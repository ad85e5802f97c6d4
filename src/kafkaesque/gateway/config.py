"""The settings of a gateway, each declared once; read by the command line, passed down."""

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
    """How a gateway treats its clients."""

    zookeeper_connect: str = setting(
        "zookeeper.connect", STRING, "",
        "Where gateways know of each other, presence and routes. Empty: this one is alone.",
        ours=True,
    )  # fmt: skip
    advertised_listener: str = setting(
        "advertised.listener", STRING, "",
        "HOST:PORT that clients are told to dial; empty: the address that is listened on.",
        ours=True,
    )  # fmt: skip
    listen_backlog: int = setting(
        "listen.backlog", INT, 4096,
        "Connections that may wait to be accepted. asyncio's 100 makes a reconnect storm last.",
        at_least=1, at_most=65_535, ours=True,
    )  # fmt: skip
    connections_max: int = setting(
        "connections.max", INT, 100_000, "A connection beyond is closed as busy.",
        at_least=1, ours=True,
    )  # fmt: skip
    connections_per_user_max: int = setting(
        "connections.per.user.max", INT, 16, "A user's connections on this gateway.",
        at_least=1, ours=True,
    )  # fmt: skip
    subscriptions_max: int = setting(
        "subscriptions.max", INT, 64, "Rooms that one connection may follow.",
        at_least=0, ours=True,
    )  # fmt: skip
    frame_max_bytes: int = setting(
        "frame.max.bytes", INT, 64 * _KIB, "A client's message may not be larger.",
        at_least=_KIB, at_most=512 * _KIB, ours=True,
    )  # fmt: skip
    write_buffer_bytes: int = setting(
        "write.buffer.bytes", INT, 64 * _KIB,
        "Bytes that wait for one slow client. Beyond, its events stay in the log until it has read.",
        at_least=_KIB, at_most=16_384 * _KIB, ours=True,
    )  # fmt: skip
    slow_timeout_ms: int = setting(
        "slow.timeout.ms", INT, 120_000,
        "A client that has taken nothing for this long, though there was something, is closed.",
        at_least=100, ours=True,
    )  # fmt: skip
    heartbeat_ms: int = setting(
        "heartbeat.ms", INT, 25_000,
        "How often a client must say something; it is closed after two and a half of these.",
        at_least=100, ours=True,
    )  # fmt: skip
    auth_timeout_ms: int = setting(
        "auth.timeout.ms", INT, 10_000,
        "A connection that has not said who it is by then is closed.",
        at_least=100, ours=True,
    )  # fmt: skip
    send_rate: float = setting(
        "send.rate", DOUBLE, 50.0, "Commands and questions a second and user, in the long run.",
        at_least=0.1, ours=True,
    )  # fmt: skip
    send_burst: int = setting(
        "send.burst", INT, 100, "Commands and questions that a user may send at once.",
        at_least=1, ours=True,
    )  # fmt: skip
    in_flight_max: int = setting(
        "in.flight.max", INT, 64, "Commands and questions of a connection that wait for the log.",
        at_least=1, ours=True,
    )  # fmt: skip
    ask_timeout_ms: int = setting(
        "ask.timeout.ms", INT, 10_000, "A question that is not answered by then has failed.",
        at_least=10, ours=True,
    )  # fmt: skip
    ws_origins: tuple[str, ...] = setting(
        "ws.origins", LIST, (),
        "Pages, besides those of the same host, that may open a WebSocket; `*` is any.",
        ours=True,
    )  # fmt: skip
    proxy_protocol: bool = setting(
        "proxy.protocol", BOOLEAN, False,
        "Every connection from a trusted proxy begins with a PROXY header (v1 or v2).",
        ours=True,
    )  # fmt: skip
    proxy_trusted: tuple[str, ...] = setting(
        "proxy.trusted", LIST, ("127.0.0.0/8", "::1/128"),
        "Networks whose PROXY header and X-Forwarded-For are believed.",
        ours=True,
    )  # fmt: skip
    tls_certificate: str = setting(
        "tls.certificate", STRING, "",
        "PEM file. With it all connections are TLS, and a restart drains instead of handing over.",
        ours=True,
    )  # fmt: skip
    tls_key: str = setting("tls.key", STRING, "", "PEM file of the certificate's key.", ours=True)
    jwt_algorithms: tuple[str, ...] = setting(
        "auth.jwt.algorithms", LIST, (),
        "Accepted signatures of others' tokens; empty: only tokens of the gateways are accepted.",
        choices=("HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "PS256",
                 "ES256", "ES384", "ES512", "EdDSA"),
        ours=True,
    )  # fmt: skip
    jwt_key: str = setting(
        "auth.jwt.key.file", STRING, "", "File with the secret (HS) or public key (PEM).",
        ours=True,
    )  # fmt: skip
    jwt_jwks: str = setting(
        "auth.jwt.jwks", STRING, "", "File or https URL of a JWKS, read anew for an unknown `kid`.",
        ours=True,
    )  # fmt: skip
    jwt_audience: str = setting(
        "auth.jwt.audience", STRING, "", "Required `aud`; empty: not looked at.", ours=True,
    )  # fmt: skip
    jwt_issuer: str = setting(
        "auth.jwt.issuer", STRING, "", "Required `iss`; empty: not looked at.", ours=True,
    )  # fmt: skip
    passwords: bool = setting(
        "auth.passwords", BOOLEAN, True, "Whether a name and a password log in.", ours=True,
    )  # fmt: skip
    secret_file: str = setting(
        "auth.secret.file", STRING, "",
        "Key of the tokens that gateways issue; the same file for all of them. Empty: made in the "
        "data directory.",
        ours=True,
    )  # fmt: skip
    token_ttl_ms: int = setting(
        "auth.token.ttl.ms", INT, 3_600_000, "How long an issued token is good for.",
        at_least=1000, ours=True,
    )  # fmt: skip
    drain_batch: int = setting(
        "drain.batch", INT, 500, "Clients told to go away at a time.", at_least=1, ours=True,
    )  # fmt: skip
    drain_interval_ms: int = setting(
        "drain.interval.ms", INT, 250, "Time between two such batches.", at_least=0, ours=True,
    )  # fmt: skip
    drain_settle_ms: int = setting(
        "drain.settle.ms", INT, 0,
        "Time between readiness off and the first batch, for balancers to notice.",
        at_least=0, ours=True,
    )  # fmt: skip
    drain_grace_ms: int = setting(
        "drain.grace.ms", INT, 5000, "Time a client has to go by itself.", at_least=0, ours=True,
    )  # fmt: skip
    interest_linger_ms: int = setting(
        "interest.linger.ms", INT, 60_000,
        "How long a partition is still read after its last user went.", at_least=0, ours=True,
    )  # fmt: skip


GATEWAY_SETTINGS: Mapping[str, Setting] = settings_of(GatewayConfig)


def gateway_config(values: Mapping[str, str]) -> GatewayConfig:
    """InvalidConfig names the setting that is unknown or wrong."""
    return typed_settings(GatewayConfig, values)
