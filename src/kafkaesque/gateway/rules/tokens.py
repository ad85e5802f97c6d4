"""JWT tokens: verification, and the tokens that gateways issue themselves.

Accepted are tokens signed with the gateways' own key (HS256, issuer `kafkaesque`) and, if configured, with
keys of other issuers. The algorithm must be in the configured list: a token cannot choose how it is verified,
and `none` is in no list. The key must fit the algorithm, so a public key is never used as an HS secret.
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
    """The reason is for the gateway's log; the client only learns that authentication failed."""


class KeyUnknown(TokenRefused):
    """The key set does not contain the token's key (`kid`); reading the set again may help."""


@dataclass(frozen=True, slots=True)
class TokenIdentity:
    """The authenticated user of a connection."""

    user: str
    token_id: str
    expires_ms: TimestampMs
    own: bool
    """Whether a gateway issued the token and may renew it."""


@dataclass(frozen=True, slots=True)
class TrustedIssuer:
    """Which tokens are accepted besides the gateways' own."""

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
        """Raises TokenRefused if `data` is not a JWKS. Keys of unknown types are ignored (RFC 7517)."""
        try:
            found = jwt.PyJWKSet.from_dict(dict(data)).keys
        except (jwt.PyJWTError, AttributeError, TypeError) as error:
            raise TokenRefused(f"not a JWKS: {error}") from None
        return cls({key.key_id: key for key in found if key.key_id})


class Tokens:
    """Verifies and issues tokens, and keeps the revoked ones."""

    def __init__(self, secret: bytes, trust: TrustedIssuer, ttl_ms: int) -> None:
        self._secret = secret
        self._trust = trust
        self._ttl_ms = ttl_ms
        self._revoked: dict[str, int] = {}
        self.key_set = KeySet()

    def issue(self, user: str, now_ms: TimestampMs) -> tuple[str, TokenIdentity]:
        identity = TokenIdentity(
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

    def verify(self, token: str, now_ms: TimestampMs) -> TokenIdentity:
        """Raises TokenRefused unless the token is valid now."""
        if len(token) > TOKEN_LENGTH_MAX:
            raise TokenRefused("too long")
        try:
            header = jwt.get_unverified_header(token)
            claims, own = self._claims(token, header)
        except (jwt.PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused(f"{type(error).__name__}: {error}") from None
        return self._check_claims(claims, own, now_ms)

    def _claims(self, token: str, header: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
        # Expiry is checked against our own clock, in `_check_claims`.
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
                raise TokenRefused(f"the key does not fit {algorithm}")
            return self._trust.key
        if name is None:
            raise TokenRefused("the token has no key id")
        raise KeyUnknown(f"no key {str(name)[:64]!r}")

    def _check_claims(
        self, claims: Mapping[str, Any], own: bool, now_ms: TimestampMs
    ) -> TokenIdentity:
        user, expires_s = claims.get("sub"), claims.get("exp")
        begins_s = claims.get("nbf", 0)
        if not isinstance(user, str) or not 0 < len(user) <= NAME_LENGTH_MAX:
            raise TokenRefused("the token has no user")
        if not isinstance(expires_s, int | float) or not isinstance(begins_s, int | float):
            raise TokenRefused("the token does not expire")
        if expires_s * 1000 <= now_ms:
            raise TokenRefused("expired")
        if begins_s * 1000 > now_ms + LEEWAY_MS:
            raise TokenRefused("not valid yet")
        token_id = claims.get("jti")
        identity = TokenIdentity(
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
    """Whether names of users, rooms or operations are valid: short, without control characters."""
    return all(0 < len(name) <= NAME_LENGTH_MAX and name.isprintable() for name in names)
