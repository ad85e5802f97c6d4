"""SASL before the first request: PLAIN (RFC 4616) and SCRAM (RFC 5802), as KIP-152 carries them.

The two requests are so small that they are written by hand: SaslHandshake v1, SaslAuthenticate v0.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import ssl
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkaesque.model.errors import ProtocolError

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ITERATIONS_MAX: Final = 1_000_000
"""A broker that asks for more would keep us hashing for minutes."""
ANSWER_BYTES_MAX: Final = 1 << 20
_HANDSHAKE, _AUTHENTICATE = 17, 36


class InvalidSecurity(Exception):
    """The client properties ask for what is not to be had here."""


@dataclass(frozen=True, slots=True)
class Credentials:
    mechanism: str
    username: str
    password: str

    def __repr__(self) -> str:
        return f"Credentials({self.mechanism}, {self.username!r})"


def read_credentials(properties: Mapping[str, str]) -> Credentials | None:
    """From librdkafka's names; None where the protocol has no SASL."""
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if not protocol.startswith("SASL_"):
        return None
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or ""
    if mechanism.upper() not in MECHANISMS:
        raise InvalidSecurity(
            f"sasl.mechanism '{mechanism}': the console has {', '.join(MECHANISMS)}"
        )
    user, password = properties.get("sasl.username"), properties.get("sasl.password")
    if user is None or password is None:
        raise InvalidSecurity("SASL needs sasl.username and sasl.password")
    return Credentials(mechanism.upper(), user, password)


def read_tls(properties: Mapping[str, str]) -> ssl.SSLContext | None:
    """From librdkafka's names; PEM files."""
    if not properties.get("security.protocol", "PLAINTEXT").upper().endswith("SSL"):
        return None
    try:
        context = ssl.create_default_context(cafile=properties.get("ssl.ca.location"))
        if certificate := properties.get("ssl.certificate.location"):
            key, password = properties.get("ssl.key.location"), properties.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSecurity(f"the TLS files cannot be used: {error}") from None
    context.check_hostname = (
        properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    )
    return context


async def authenticate(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, credentials: Credentials
) -> None:
    """Return when the broker let us in; ProtocolError says why not."""

    async def call(api: int, version: int, body: bytes) -> bytes:
        writer.write(struct.pack(">ihhih", 10 + len(body), api, version, 0, -1) + body)
        size = int.from_bytes(await reader.readexactly(4))
        if not 6 <= size <= ANSWER_BYTES_MAX:
            raise ProtocolError("a SASL answer of impossible size")
        answer = await reader.readexactly(size)
        if error := int.from_bytes(answer[4:6], signed=True):
            raise ProtocolError(f"SASL was refused with error {error}")
        return answer[6:]

    async def step(message: bytes) -> bytes:
        answer = await call(_AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
        message_size = int.from_bytes(answer[:2], signed=True)
        rest = answer[2 + max(0, message_size) :]
        return rest[4 : 4 + int.from_bytes(rest[:4])]

    name = credentials.mechanism.encode()
    await call(_HANDSHAKE, 1, struct.pack(">h", len(name)) + name)
    if credentials.mechanism == "PLAIN":
        await step(b"\0" + credentials.username.encode() + b"\0" + credentials.password.encode())
        return
    scram = Scram(credentials, secrets.token_urlsafe(18))
    scram.check(await step(scram.proof(await step(scram.first()))))


class Scram:
    """The client's side of one exchange."""

    def __init__(self, credentials: Credentials, nonce: str) -> None:
        self._hash = "sha512" if credentials.mechanism.endswith("512") else "sha256"
        self._password = credentials.password.encode()
        name = credentials.username.replace("=", "=3D").replace(",", "=2C")
        self._nonce = nonce
        self._bare = f"n={name},r={nonce}"
        self._expected = b""

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def proof(self, challenge: bytes) -> bytes:
        text = challenge.decode(errors="replace")
        fields = dict(item.split("=", 1) for item in text.split(",") if "=" in item)
        nonce, rounds = fields.get("r", ""), fields.get("i", "")
        if not nonce.startswith(self._nonce) or not rounds.isdecimal():
            raise ProtocolError("the broker's SCRAM challenge is none")
        if not 1 <= int(rounds) <= ITERATIONS_MAX:
            raise ProtocolError(f"the broker asks for {rounds} rounds of SCRAM")
        salt = base64.b64decode(fields.get("s", ""))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, int(rounds))
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{text},{without_proof}".encode()
        key = self._mac(salted, b"Client Key")
        signature = self._mac(hashlib.new(self._hash, key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._expected = self._mac(self._mac(salted, b"Server Key"), signed)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, final: bytes) -> None:
        """A broker that does not know the password either is not the broker."""
        if not hmac.compare_digest(final, b"v=" + base64.b64encode(self._expected)):
            raise ProtocolError("the broker could not prove who it is")

    def _mac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self._hash)
