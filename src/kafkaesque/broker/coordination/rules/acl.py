"""Access control lists: the schemes world, auth, digest and ip.

The rules of PrepRequestProcessor.fixupACL and ZooKeeperServer.checkACL (3.9). Permissions apply to one
node and are not inherited.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError, Permission


class AuthIdentity(NamedTuple):
    """An identity under a scheme: ("ip", "127.0.0.1"), ("digest", "user:hash")."""

    scheme: str
    id: str


class Acl(NamedTuple):
    """The permissions of `scheme:id` on a node."""

    permissions: int
    scheme: str
    id: str


ALL_PERMISSIONS = 31
OPEN: tuple[Acl, ...] = (Acl(ALL_PERMISSIONS, "world", "anyone"),)
READ_ONLY: tuple[Acl, ...] = (Acl(int(Permission.READ), "world", "anyone"),)


def allows(acl: Sequence[Acl], permission: Permission, identities: Sequence[AuthIdentity]) -> bool:
    """True if one entry grants any bit of `permission` to one of `identities`."""
    if not acl or acl is OPEN:
        return True
    wanted = int(permission)
    for entry in acl:
        if not entry.permissions & wanted:
            continue
        if entry.scheme == "world" and entry.id == "anyone":
            return True
        for identity in identities:
            if identity.scheme == entry.scheme and _matches(identity, entry):
                return True
    return False


def require(acl: Sequence[Acl], permission: Permission, identities: Sequence[AuthIdentity]) -> None:
    if not allows(acl, permission, identities):
        raise CoordinationError(Code.NO_AUTH)


def _matches(identity: AuthIdentity, entry: Acl) -> bool:
    if entry.scheme == "ip":
        return _is_in_network(identity.id, entry.id)
    return identity.id == entry.id


def _is_in_network(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def settle(acl: Sequence[Acl], identities: Sequence[AuthIdentity]) -> tuple[Acl, ...]:
    """The list as stored: without duplicates, `auth` replaced by the caller's identities. Raises
    INVALID_ACL."""
    settled: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.scheme == "auth":
            proven = [identity for identity in identities if identity.scheme == "digest"]
            if not proven:
                raise CoordinationError(Code.INVALID_ACL, "auth needs a proven identity")
            settled += [Acl(entry.permissions, *identity) for identity in proven]
        elif _is_valid(entry):
            settled.append(entry)
        else:
            raise CoordinationError(Code.INVALID_ACL, f"{entry.scheme}:{entry.id}")
    if not settled:
        raise CoordinationError(Code.INVALID_ACL, "an empty list")
    result = tuple(settled)
    # Nearly every node has this list: share it.
    return OPEN if result == OPEN else result


def _is_valid(entry: Acl) -> bool:
    match entry.scheme:
        case "world":
            return entry.id == "anyone"
        case "digest":
            return entry.id.count(":") == 1 and not entry.id.endswith(":")
        case "ip":
            return _is_network(entry.id)
    return False


def _is_network(text: str) -> bool:
    """Whether it is an IPv4 address, with or without a prefix length."""
    address, slash, bits = text.partition("/")
    try:
        ipaddress.IPv4Address(address)
    except ValueError:
        return False
    return not slash or (bits.isdecimal() and int(bits) <= 32)


def prove(scheme: str, secret: bytes, address: str) -> AuthIdentity:
    """The identity that an auth request proves. Raises AUTH_FAILED for an unknown scheme."""
    if scheme == "ip":
        return AuthIdentity("ip", address)
    if scheme != "digest":
        raise CoordinationError(Code.AUTH_FAILED, f"scheme {scheme!r}")
    user = secret.split(b":", 1)[0].decode(errors="replace")
    # The scheme requires SHA-1: both sides must compute the same identity.
    digest = hashlib.sha1(secret, usedforsecurity=False).digest()
    return AuthIdentity("digest", f"{user}:{base64.b64encode(digest).decode()}")


def redact(acl: Sequence[Acl]) -> tuple[Acl, ...]:
    """Removes the password hashes, for a reader without ADMIN permission."""
    return tuple(
        Acl(entry.permissions, "digest", entry.id.split(":", 1)[0] + ":x")
        if entry.scheme == "digest"
        else entry
        for entry in acl
    )
