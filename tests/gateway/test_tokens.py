from __future__ import annotations

import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kafkaesque.gateway.rules.tokens import (
    KeySet,
    KeyUnknown,
    TokenRefused,
    Tokens,
    TrustedIssuer,
    usable_names,
)
from kafkaesque.model.ids import TimestampMs

NOW = TimestampMs(1_790_000_000_000)
SECRET = b"0123456789abcdef0123456789abcdef"
CLAIMS = {"sub": "alice", "exp": NOW // 1000 + 60, "jti": "j1"}
RSA_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def public_pem(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> str:
    return (
        key.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
        .strip()
    )


def tokens(trust: TrustedIssuer | None = None) -> Tokens:
    return Tokens(SECRET, trust or TrustedIssuer(), ttl_ms=60_000)


def test_an_own_token_is_valid_until_it_expires() -> None:
    ours = tokens()
    token, issued = ours.issue("alice", NOW)
    found = ours.verify(token, TimestampMs(NOW + 59_000))
    assert (found.user, found.token_id, found.own) == ("alice", issued.token_id, True)
    with pytest.raises(TokenRefused, match="expired"):
        ours.verify(token, TimestampMs(NOW + 60_000))


def test_a_token_signed_with_another_key_is_refused() -> None:
    token, _ = Tokens(b"x" * 32, TrustedIssuer(), 60_000).issue("alice", NOW)
    with pytest.raises(TokenRefused):
        tokens().verify(token, NOW)


def test_a_revoked_token_is_refused_until_its_expiry() -> None:
    ours = tokens()
    token, issued = ours.issue("alice", NOW)
    ours.revoke(issued.token_id, issued.expires_ms, NOW)
    with pytest.raises(TokenRefused, match="logged out"):
        ours.verify(token, NOW)
    ours.forget_expired(TimestampMs(issued.expires_ms + 1))
    ours.revoke("long-ago", NOW - 1, NOW)
    assert ours._revoked == {}


@pytest.mark.parametrize("algorithm", ["HS256", "RS256", "ES256"])
def test_tokens_of_other_issuers_are_verified_with_their_key(algorithm: str) -> None:
    secret = "another-secret-of-thirty-two-chars"
    signing: object = {"HS256": secret, "RS256": RSA_KEY, "ES256": EC_KEY}[algorithm]
    key = secret if algorithm == "HS256" else public_pem(signing)  # type: ignore[arg-type]
    theirs = tokens(TrustedIssuer((algorithm,), key))
    token = jwt.encode(CLAIMS, signing, algorithm)  # type: ignore[arg-type]
    found = theirs.verify(token, NOW)
    assert (found.user, found.token_id, found.own) == ("alice", "j1", False)
    with pytest.raises(TokenRefused):
        tokens().verify(token, NOW)


def test_a_public_key_is_not_used_as_a_secret() -> None:
    """The classic forgery: sign with HS256 and the public key as secret."""
    pem = public_pem(RSA_KEY)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT"}').rstrip(b"=")
    body = base64.urlsafe_b64encode(json.dumps(CLAIMS).encode()).rstrip(b"=")
    import hashlib
    import hmac

    signature = hmac.new(pem.encode(), head + b"." + body, hashlib.sha256).digest()
    forged = b".".join((head, body, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()
    for algorithms in (("RS256",), ("RS256", "HS256")):
        with pytest.raises(TokenRefused):
            tokens(TrustedIssuer(algorithms, pem)).verify(forged, NOW)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW // 1000 + 60},
        {"sub": "", "exp": NOW // 1000 + 60},
        {"sub": "x" * 200, "exp": NOW // 1000 + 60},
        {"sub": "alice"},
        {"sub": "alice", "exp": NOW // 1000 - 1},
        {"sub": "alice", "exp": NOW // 1000 + 60, "nbf": NOW // 1000 + 30},
    ],
)
def test_incomplete_claims_are_refused(claims: dict[str, object]) -> None:
    secret = "another-secret-of-thirty-two-chars"
    with pytest.raises(TokenRefused):
        tokens(TrustedIssuer(("HS256",), secret)).verify(jwt.encode(claims, secret, "HS256"), NOW)


def test_audience_and_issuer_are_required_if_configured() -> None:
    secret = "another-secret-of-thirty-two-chars"
    strict = tokens(TrustedIssuer(("HS256",), secret, audience="chat", issuer="id"))
    good = {**CLAIMS, "aud": "chat", "iss": "id"}
    assert strict.verify(jwt.encode(good, secret, "HS256"), NOW).user == "alice"
    for claims in (CLAIMS, {**good, "aud": "mail"}, {**good, "iss": "me"}):
        with pytest.raises(TokenRefused):
            strict.verify(jwt.encode(claims, secret, "HS256"), NOW)


@pytest.mark.parametrize(
    "token", ["", "x", "a.b.c", "é" * 10, "x" * 5000, "eyJhbGciOiJub25lIn0.e30."]
)
def test_text_that_is_not_a_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        tokens(TrustedIssuer(("RS256",), public_pem(RSA_KEY))).verify(token, NOW)


def test_the_key_set_selects_the_key_and_an_unknown_key_is_reported() -> None:
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key()))
    theirs = tokens(TrustedIssuer(("ES256",)))
    token = jwt.encode(CLAIMS, EC_KEY, "ES256", headers={"kid": "k1"})
    with pytest.raises(KeyUnknown):
        theirs.verify(token, NOW)
    theirs.key_set = KeySet.parse({"keys": [{**jwk, "kid": "k1", "alg": "ES256"}]})
    assert theirs.verify(token, NOW).user == "alice"
    with pytest.raises(TokenRefused):
        KeySet.parse({"keys": "none"})


def test_names_are_short_and_printable() -> None:
    assert usable_names(["alice", "zoë", "a b"])
    for name in ("", "a\x00b", "a\nb", "x" * 200):
        assert not usable_names([name])
