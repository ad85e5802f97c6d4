"""Tokens: whose signature is believed, and those that gateways issue themselves. No I/O, no clock.

Accepted are tokens of the gateways' own key (HS256, issuer `kafkaesque`) and, where keys of others are
given, of theirs. The algorithm must be one of the list: a token cannot choose how it is judged, and
`none` is in no list. The key must fit the algorithm, so a public key is never taken for an HS secret.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jwt

from kafkaesque.edge.protocol.messages import NAME_LENGTH_MAX
from kafkaesque.model.ids import TimestampMs

ISSUER = "kafkaesque"
OWN_ALGORITHM = "HS256"
SECRET_SIZE_BYTES = 32
TOKEN_LENGTH_MAX = 4096
LEEWAY_MS = 5_000


class TokenRefused(Exception):
    """Why, in words for the log of the gateway; a client is told no more than that it failed."""


class KeyUnknown(TokenRefused):
    """The token names a key (`kid`) that is not in the key set: reading the set anew may help."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Whom a connection speaks for."""

    user: str
    token_id: str
    expires_ms: TimestampMs
    own: bool
    """Issued by a gateway, which may renew it."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What is believed besides the gateways' own tokens."""

    algorithms: tuple[str, ...] = ()
    key: str = ""
    """A secret, or a public key in PEM."""
    audience: str = ""
    issuer: str = ""


@dataclass(slots=True)
class KeySet:
    """A JWKS: public keys by their `kid`."""

    keys: Mapping[str, jwt.PyJWK] = field(default_factory=dict)

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> KeySet:
        """TokenRefused if it is no JWKS. Keys of unknown kinds are passed over, as RFC 7517 asks."""
        try:
            found = jwt.PyJWKSet.from_dict(dict(data)).keys
        except (jwt.PyJWTError, AttributeError, TypeError) as error:
            raise TokenRefused(f"no JWKS: {error}") from None
        return cls({key.key_id: key for key in found if key.key_id})


class Tokens:
    """Judges tokens, issues tokens, and remembers those that were revoked."""

    def __init__(self, secret: bytes, trust: Trust, ttl_ms: int) -> None:
        self._secret = secret
        self._trust = trust
        self._ttl_ms = ttl_ms
        self._revoked: dict[str, int] = {}
        self.key_set = KeySet()

    def issue(self, user: str, now_ms: TimestampMs) -> tuple[str, Identity]:
        identity = Identity(
            user, secrets.token_hex(16), TimestampMs(now_ms + self._ttl_ms), own=True
        )
        claims = {
            "iss": ISSUER,
            "sub": user,
            "jti": identity.token_id,
            "iat": now_ms // 1000,
            "exp": identity.expires_ms // 1000,
        }
        return jwt.encode(claims, self._secret, OWN_ALGORITHM), identity

    def verify(self, token: str, now_ms: TimestampMs) -> Identity:
        """TokenRefused unless it is good now."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise TokenRefused("too long")
        try:
            header = jwt.get_unverified_header(token)
            claims, own = self._claims(token, header)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused(f"{type(error).__name__}: {error}") from None
        return self._judge(claims, own, now_ms)

    def _claims(self, token: str, header: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        # Expiry is judged by our own clock, below.
        options: Any = {"verify_exp": False, "verify_nbf": False, "verify_iat": False}
        if header.get("alg") == OWN_ALGORITHM:
            try:
                claims = jwt.decode(
                    token, self._secret, [OWN_ALGORITHM], options=options, issuer=ISSUER
                )
                return claims, True
            except (jwt.InvalidSignatureError, jwt.InvalidIssuerError):
                if OWN_ALGORITHM not in self._trust.algorithms:
                    raise
        trust = self._trust
        options = {**options, "verify_aud": bool(trust.audience)}
        claims = jwt.decode(
            token,
            self._key_for(header),
            list(trust.algorithms),
            options=options,
            audience=trust.audience or None,
            issuer=trust.issuer or None,
        )
        return claims, False

    def _key_for(self, header: Mapping[str, Any]) -> Any:
        name = header.get("kid")
        if name is not None and name in self.key_set.keys:
            return self.key_set.keys[name]
        if self._trust.key:
            algorithm = str(header.get("alg"))
            if algorithm.startswith("HS") == self._trust.key.startswith("-----BEGIN"):
                raise TokenRefused(f"the key is not one for {algorithm}")
            return self._trust.key
        if name is None:
            raise TokenRefused("a token that names no key")
        raise KeyUnknown(f"no key {str(name)[:64]!r}")

    def _judge(self, claims: Mapping[str, Any], own: bool, now_ms: TimestampMs) -> Identity:
        user, expires_s = claims.get("sub"), claims.get("exp")
        begins_s = claims.get("nbf", 0)
        if not isinstance(user, str) or not 0 < len(user) <= NAME_LENGTH_MAX:
            raise TokenRefused("no user in it")
        if not isinstance(expires_s, int | float) or not isinstance(begins_s, int | float):
            raise TokenRefused("it never ends")
        if expires_s * 1000 <= now_ms:
            raise TokenRefused("expired")
        if begins_s * 1000 > now_ms + LEEWAY_MS:
            raise TokenRefused("not yet good")
        token_id = claims.get("jti")
        identity = Identity(
            user,
            token_id if isinstance(token_id, str) else "",
            TimestampMs(int(expires_s * 1000)),
            own,
        )
        if identity.token_id and identity.token_id in self._revoked:
            raise TokenRefused("logged out")
        return identity

    # -- revocation ----------------------------------------------------------------------------------

    def revoke(self, token_id: str, until_ms: int, now_ms: TimestampMs) -> None:
        if until_ms > now_ms:
            self._revoked[token_id] = until_ms

    def forget_expired(self, now_ms: TimestampMs) -> None:
        self._revoked = {name: until for name, until in self._revoked.items() if until > now_ms}


def new_secret() -> str:
    return secrets.token_hex(SECRET_SIZE_BYTES)


def usable_names(names: Sequence[str]) -> bool:
    """Names of users, rooms and operations: short, and without control characters."""
    return all(0 < len(name) <= NAME_LENGTH_MAX and name.isprintable() for name in names)
