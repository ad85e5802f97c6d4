"""The addresses on which a broker listens and which it advertises to clients."""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import BrokerConfig

_SCHEME = "PLAINTEXT://"


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, setting: str) -> Address:
    """Parses HOST:PORT, with or without a PLAINTEXT:// prefix. An IPv6 host may be in brackets."""
    host, separator, port = text.strip().removeprefix(_SCHEME).rpartition(":")
    if not separator or not port.isdigit() or int(port) > 65535:
        raise InvalidConfig(f"{setting} must be HOST:PORT, not {text!r}")
    return Address(host.strip("[]") or "127.0.0.1", int(port))


def listen_address(config: BrokerConfig) -> Address:
    """Returns the address to bind. Raises InvalidConfig if other machines could reach it
    unprotected."""
    if "," in config.listeners:
        raise InvalidConfig(f"listeners: one listener is supported, not {config.listeners!r}")
    return guarded_address(config, config.listeners, "listeners")


def guarded_address(config: BrokerConfig, text: str, setting: str) -> Address:
    """Returns the address of a plaintext listener. Raises InvalidConfig if other machines could
    reach it."""
    address = parse_address(text, setting)
    if not config.insecure and not _is_loopback(address.host):
        raise InvalidConfig(
            f"{setting}: {address.host} can be reached from other machines and this listener is plaintext "
            "without authentication; listen on 127.0.0.1, or use --insecure if your network is "
            "trusted"
        )
    return address


def advertised_address(config: BrokerConfig, bound: Address) -> Address:
    """Returns the address that clients get: the setting, or the bound address.

    Clients cannot connect to a wildcard address, so it is advertised as loopback. `localhost` is
    advertised as IPv4, because clients that resolve it to ::1 first would miss an IPv4 listener.
    """
    if config.advertised_listeners:
        advertised = parse_address(config.advertised_listeners, "advertised.listeners")
        return advertised if advertised.port else Address(advertised.host, bound.port)
    if bound.host in ("0.0.0.0", "localhost"):  # noqa: S104 - compared, not bound
        return Address("127.0.0.1", bound.port)
    return Address("::1", bound.port) if bound.host == "::" else bound


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
