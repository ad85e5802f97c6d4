"""How a connection proves who it is: TLS and SASL, by Kafka's own property names.

The property names are those of the Java client (`ssl.truststore.location` as PEM, `sasl.jaas.config`)
and of librdkafka (`ssl.ca.location`, `sasl.username`), so that one set of options serves either
engine. Mechanisms: PLAIN (RFC 4616) and SCRAM-SHA-256/512 (RFC 5802). No socket here.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import ssl
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.pipeline.errors import InvalidOption, KafkaRefused

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_ITERATIONS_MAX = 1_000_000
"""A broker that asks for more is not a broker; it would keep us hashing for minutes."""

_JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Security:
    """What a connection needs before its first request."""

    uses_tls: bool = False
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_host: bool = True
    mechanism: str | None = None
    username: str = ""
    password: str = ""

    def __repr__(self) -> str:
        """Without the password: options end in logs and in Spark's plans."""
        return f"Security(tls={self.uses_tls}, mechanism={self.mechanism}, user={self.username!r})"

    def tls_context(self) -> ssl.SSLContext:
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file:
                context.load_cert_chain(self.certificate_file, self.key_file, self.key_password)
        except (OSError, ssl.SSLError) as error:
            raise InvalidOption(f"the TLS files cannot be used: {error}") from error
        context.check_hostname = self.verify_host
        return context


def read_security(properties: Mapping[str, str]) -> Security:
    """`properties` without their `kafka.` prefix."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise InvalidOption(f"security.protocol is {protocol}, none of {', '.join(PROTOCOLS)}")
    mechanism = None
    username, password = "", ""
    if protocol.startswith("SASL_"):
        mechanism = (properties.get("sasl.mechanism") or properties.get("sasl.mechanisms")) or ""
        if mechanism not in MECHANISMS:
            raise InvalidOption(
                f"sasl.mechanism is '{mechanism}', the Python engine has {', '.join(MECHANISMS)}",
                "Kerberos and OAUTHBEARER need engine=jvm",
            )
        username, password = _credentials(properties)
    store = properties.get("ssl.truststore.location")
    if (
        store
        and properties.get("ssl.truststore.type", "PEM" if store.endswith(".pem") else "JKS")
        != "PEM"
    ):
        raise InvalidOption(
            "ssl.truststore.location is not PEM, which is what the Python engine reads"
        )
    return Security(
        uses_tls=protocol.endswith("SSL"),
        ca_file=properties.get("ssl.ca.location") or store,
        certificate_file=properties.get("ssl.certificate.location")
        or properties.get("ssl.keystore.location"),
        key_file=properties.get("ssl.key.location"),
        key_password=properties.get("ssl.key.password"),
        verify_host=properties.get("ssl.endpoint.identification.algorithm", "https") == "https",
        mechanism=mechanism,
        username=username,
        password=password,
    )


def _credentials(properties: Mapping[str, str]) -> tuple[str, str]:
    found = {
        name: value.replace('\\"', '"').replace("\\\\", "\\")
        for name, value in _JAAS.findall(properties.get("sasl.jaas.config", ""))
    }
    username = properties.get("sasl.username", found.get("username"))
    password = properties.get("sasl.password", found.get("password"))
    if username is None or password is None:
        raise InvalidOption(
            "SASL needs a user and a password",
            "sasl.jaas.config, or sasl.username and sasl.password",
        )
    return username, password


def sasl_exchange(security: Security, nonce: str | None = None) -> SaslClient:
    """The client's side of the mechanism that `security` names."""
    if security.mechanism == "PLAIN":
        return Plain(security.username, security.password)
    return Scram(
        security.username,
        security.password,
        "sha512" if security.mechanism == "SCRAM-SHA-512" else "sha256",
        nonce or secrets.token_urlsafe(18),
    )


class SaslClient(ABC):
    """Messages of one authentication: `first`, then `answer` to each until `is_done`."""

    is_done = False

    @abstractmethod
    def first(self) -> bytes:
        """What to begin with."""

    @abstractmethod
    def answer(self, challenge: bytes) -> bytes | None:
        """What to send next, or None when nothing more is due. KafkaRefused if it is a cheat."""


class Plain(SaslClient):
    """RFC 4616: one message."""

    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def first(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        self.is_done = True
        return None


class Scram(SaslClient):
    """RFC 5802 without channel binding. The server must prove that it knows the password too."""

    def __init__(self, username: str, password: str, digest: str, nonce: str) -> None:
        self._digest = digest
        self._password = password
        self._nonce = nonce
        escaped = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={escaped},r={nonce}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        if self._server_signature is None:
            return self._prove(challenge.decode())
        fields = _scram_fields(challenge.decode())
        if "e" in fields:
            raise KafkaRefused(f"SCRAM authentication failed: {fields['e']}")
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), self._server_signature):
            raise KafkaRefused("the server does not know the password: SCRAM signature differs")
        self.is_done = True
        return None

    def _prove(self, server_first: str) -> bytes:
        fields = _scram_fields(server_first)
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or not iterations.isdigit():
            raise KafkaRefused("the server broke the SCRAM exchange")
        if int(iterations) > SCRAM_ITERATIONS_MAX:
            raise KafkaRefused(f"the server asks for {iterations} SCRAM iterations")
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password.encode(), base64.b64decode(salt), int(iterations)
        )
        without_proof = f"c=biws,r={nonce}"
        message = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = self._hmac(stored_key, message)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)


def _scram_fields(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(",") if "=" in part)
