"""The first bytes of a connection: which protocol the client uses. One port serves all.

An optional PROXY header comes first, then either a frame (version byte 1) or an HTTP request (`G`) that
upgrades to a WebSocket. Bytes in, a wire out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from kafkaesque.edge.protocol.codes import CloseCode, Violation
from kafkaesque.edge.protocol.framing import Framing, TcpFraming
from kafkaesque.edge.protocol.messages import PROTOCOL_VERSION
from kafkaesque.edge.protocol.websocket import Handshake, OriginRule, WebSocketFraming
from kafkaesque.gateway.rules.proxy_header import forwarded_address, parse_proxy_header
from kafkaesque.model.errors import InvalidConfig


class HandshakeOutcome(NamedTuple):
    """If `wire` is None, the client is refused: `answer` says why, and the connection closes."""

    wire: Framing | None
    answer: bytes
    address: str
    rest: bytes


@dataclass(frozen=True, slots=True)
class HandshakeRules:
    """The rules of a listener."""

    origins: OriginRule
    proxy_protocol: bool
    trusted: Sequence[IPv4Network | IPv6Network]

    @classmethod
    def of(
        cls, origins: OriginRule, proxy_protocol: bool, trusted: tuple[str, ...]
    ) -> HandshakeRules:
        try:
            networks = [ip_network(text) for text in trusted]
        except ValueError as error:
            raise InvalidConfig(f"proxy.trusted: {error}") from None
        return cls(origins, proxy_protocol, networks)

    def trusts(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self.trusted)


class ConnectionHandshake:
    """Collects the first bytes of a connection until its wire is known."""

    def __init__(self, rules: HandshakeRules, host: str, address: str) -> None:
        self._rules = rules
        self._is_trusted = rules.trusts(host)
        self._address = address
        self._head = b""
        self._is_header_read = not (rules.proxy_protocol and self._is_trusted)
        self._upgrade: Handshake | None = None

    def feed(self, data: bytes) -> HandshakeOutcome | None:
        """Returns None while more bytes are needed. Raises Violation for unknown protocols."""
        self._head += data
        if not self._is_header_read:
            found = parse_proxy_header(self._head)
            if found is None:
                return None
            self._address = found.address or self._address
            self._head = self._head[found.size_bytes :]
            self._is_header_read = True
        if not self._head:
            return None
        return self._choose()

    def _choose(self) -> HandshakeOutcome | None:
        head, self._head = self._head, b""
        if self._upgrade is not None or head[:1] == b"G":
            return self._feed_upgrade(head)
        if head[0] != PROTOCOL_VERSION:
            raise Violation(CloseCode.BAD_VERSION, f"version {head[0]}, not {PROTOCOL_VERSION}")
        return HandshakeOutcome(TcpFraming(), b"", self._address, head)

    def _feed_upgrade(self, data: bytes) -> HandshakeOutcome | None:
        if self._upgrade is None:
            self._upgrade = Handshake(self._rules.origins)
        done = self._upgrade.feed(data)
        if done is None:
            return None
        address = self._address
        if self._is_trusted and done.forwarded_for:
            address = forwarded_address(done.forwarded_for) or address
        wire = None if done.encoding is None else WebSocketFraming(done.encoding)
        return HandshakeOutcome(wire, done.answer, address, done.rest)
