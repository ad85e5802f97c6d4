"""The client's side of a SASL exchange: PLAIN (RFC 4616) and SCRAM (RFC 5802). No I/O.

KIP-152 carries the messages: SaslHandshake v1 names the mechanism, each SaslAuthenticate request
has one message. The tables of both requests are here because our own broker has no SASL.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import dataclass
from typing import Final, Protocol

from kafkaesque.wire.table import Bytes, Int16, Int64, Request, Response, String, f

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SCRAM_ITERATIONS_MAX: Final = 1_000_000
"""Kafka's default is 4096. A peer that demands more than this would keep us hashing for minutes."""
_DIGESTS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}


class SaslHandshakeRequest(Request, key=17, versions="0-1"):
    mechanism: String = f("0+")


class SaslHandshakeResponse(Response, key=17, versions="0-1"):
    error_code: Int16 = f("0+")
    mechanisms: list[String] = f("0+")


class SaslAuthenticateRequest(Request, key=36, versions="0-1"):
    auth_bytes: Bytes = f("0+")


class SaslAuthenticateResponse(Response, key=36, versions="0-1"):
    error_code: Int16 = f("0+")
    error_message: String | None = f("0+", nullable="0+")
    auth_bytes: Bytes = f("0+")
    session_lifetime_ms: Int64 = f("1+", default=0)


class SaslFailed(Exception):
    """The broker broke the exchange, or could not prove that it knows the password."""


@dataclass(frozen=True, slots=True)
class SaslCredentials:
    """A user's name and password, and the mechanism to prove them by."""

    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        """Without the password: settings end up in logs and in Spark's plans."""
        return f"SaslCredentials({self.mechanism}, {self.username!r})"


class SaslExchange(Protocol):
    """Messages of one authentication: `first`, then `respond` to each challenge."""

    def first(self) -> bytes: ...

    def respond(self, challenge: bytes) -> bytes | None:
        """The next message, or None at the end. Raises SaslFailed."""
        ...


def start_exchange(credentials: SaslCredentials, nonce: str) -> SaslExchange:
    """The exchange for the mechanism of `credentials`, which is one of MECHANISMS."""
    if credentials.mechanism == "PLAIN":
        return Plain(credentials)
    return Scram(credentials, nonce)


class Plain:
    """RFC 4616: one message, and an empty answer."""

    def __init__(self, credentials: SaslCredentials) -> None:
        self._credentials = credentials

    def first(self) -> bytes:
        username, password = self._credentials.username, self._credentials.password
        return b"\0" + username.encode() + b"\0" + password.encode()

    def respond(self, challenge: bytes) -> bytes | None:
        return None


class Scram:
    """RFC 5802 without channel binding. The server proves that it knows the password too."""

    def __init__(self, credentials: SaslCredentials, nonce: str) -> None:
        self._digest = _DIGESTS[credentials.mechanism]
        self._password = credentials.password.encode()
        self._nonce = nonce
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._server_signature: bytes | None = None
        """Expected in the server's last message. None until the proof was made."""

    def first(self) -> bytes:
        return f"n,,{self._first_bare}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        try:
            text = challenge.decode()
            fields = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
            if self._server_signature is None:
                return self._prove(text, fields)
            self._verify(fields, self._server_signature)
        except ValueError as error:
            # Not UTF-8, or not base64.
            raise SaslFailed(f"the server's SCRAM message is malformed: {error}") from None
        return None

    def _prove(self, server_first: str, fields: dict[str, str]) -> bytes:
        nonce, salt, iterations = fields.get("r", ""), fields.get("s", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or not iterations.isdecimal():
            raise SaslFailed("the server's SCRAM challenge has another nonce or no iteration count")
        if not 1 <= int(iterations) <= SCRAM_ITERATIONS_MAX:
            raise SaslFailed(
                f"the server demands {iterations} SCRAM iterations, at most {SCRAM_ITERATIONS_MAX}"
            )
        salted = hashlib.pbkdf2_hmac(
            self._digest, self._password, base64.b64decode(salt), int(iterations)
        )
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._first_bare},{server_first},{without_proof}".encode()
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._digest, client_key).digest()
        signature = self._hmac(stored_key, signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._server_signature = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _verify(self, fields: dict[str, str], expected: bytes) -> None:
        if "e" in fields:
            raise SaslFailed(f"SCRAM authentication failed: {fields['e']}")
        if not hmac.compare_digest(base64.b64decode(fields.get("v", "")), expected):
            raise SaslFailed("the server does not know the password: its SCRAM signature differs")

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._digest)
