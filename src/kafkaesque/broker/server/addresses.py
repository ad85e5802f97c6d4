"""The addresses on which a broker listens and which it advertises to clients."""

from __future__ import annotations

from kafkaesque.model.address import Address, is_loopback, parse_address
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.settings import BrokerConfig

_SCHEME = "PLAINTEXT://"


def parse_listener(text: str, setting: str) -> Address:
    """HOST:PORT, with or without a PLAINTEXT:// prefix; without HOST it is loopback."""
    try:
        return parse_address(text.strip().removeprefix(_SCHEME), host_default="127.0.0.1")
    except ValueError:
        raise InvalidConfig(f"{setting} must be HOST:PORT, not {text!r}") from None


def listen_address(config: BrokerConfig) -> Address:
    """Returns the address to bind. Raises InvalidConfig if other machines could reach it
    unprotected."""
    if "," in config.listeners:
        raise InvalidConfig(f"listeners: one listener is supported, not {config.listeners!r}")
    return guarded_address(config, config.listeners, "listeners")


def guarded_address(config: BrokerConfig, text: str, setting: str) -> Address:
    """Returns the address of a plaintext listener. Raises InvalidConfig if other machines could
    reach it."""
    address = parse_listener(text, setting)
    if not config.insecure and not is_loopback(address.host):
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
        advertised = parse_listener(config.advertised_listeners, "advertised.listeners")
        return advertised if advertised.port else Address(advertised.host, bound.port)
    if bound.host in ("0.0.0.0", "localhost"):  # noqa: S104 - compared, not bound
        return Address("127.0.0.1", bound.port)
    return Address("::1", bound.port) if bound.host == "::" else bound
