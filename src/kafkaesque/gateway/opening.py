"""The first bytes of a connection: who speaks, and how. One port serves all.

An optional PROXY header, then either a frame (version byte 1) or an HTTP request (`G`) that asks for a
WebSocket. Bytes in, a wire out.
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


class Opened(NamedTuple):
    """`wire` None: refused; `answer` says why, and the connection closes."""

    wire: Framing | None
    answer: bytes
    address: str
    rest: bytes


@dataclass(frozen=True, slots=True)
class OpeningRules:
    """What holds for every connection of a listener."""

    origins: OriginRule
    proxy_protocol: bool
    trusted: Sequence[IPv4Network | IPv6Network]

    @classmethod
    def of(
        cls, origins: tuple[str, ...], proxy_protocol: bool, trusted: tuple[str, ...]
    ) -> OpeningRules:
        try:
            networks = [ip_network(text) for text in trusted]
        except ValueError as error:
            raise InvalidConfig(f"proxy.trusted: {error}") from None
        return cls(OriginRule(origins), proxy_protocol, networks)

    def trusts(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self.trusted)


class Opening:
    """Collects bytes until the wire is known. Lives for a moment only."""

    def __init__(self, rules: OpeningRules, host: str, address: str) -> None:
        self._rules = rules
        self._trusted = rules.trusts(host)
        self._address = address
        self._head = b""
        self._proxied = not (rules.proxy_protocol and self._trusted)
        self._handshake: Handshake | None = None

    def feed(self, data: bytes) -> Opened | None:
        """None while it is not clear yet. Violation for what is neither."""
        self._head += data
        if not self._proxied:
            found = parse_proxy_header(self._head)
            if found is None:
                return None
            self._address = found.address or self._address
            self._head = self._head[found.size_bytes :]
            self._proxied = True
        if not self._head:
            return None
        return self._choose()

    def _choose(self) -> Opened | None:
        head, self._head = self._head, b""
        if self._handshake is not None or head[:1] == b"G":
            return self._shake_hands(head)
        if head[0] != PROTOCOL_VERSION:
            raise Violation(CloseCode.BAD_VERSION, f"version {head[0]}, not {PROTOCOL_VERSION}")
        return Opened(TcpFraming(), b"", self._address, head)

    def _shake_hands(self, data: bytes) -> Opened | None:
        if self._handshake is None:
            self._handshake = Handshake(self._rules.origins)
        done = self._handshake.feed(data)
        if done is None:
            return None
        address = self._address
        if self._trusted and done.forwarded_for:
            address = forwarded_address(done.forwarded_for) or address
        wire = None if done.encoding is None else WebSocketFraming(done.encoding)
        return Opened(wire, done.answer, address, done.rest)
