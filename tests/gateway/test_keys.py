from __future__ import annotations

import asyncio
import json
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kafkaesque.gateway.keys import Keys, load_key, load_secret
from kafkaesque.gateway.tokens import TokenRefused, Tokens, Trust
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.ids import TimestampMs

NOW = TimestampMs(1_790_000_000_000)


class Clock:
    """Stands still until it is told otherwise."""

    now_s = 1000.0

    def wall_ms(self) -> TimestampMs:
        return NOW

    def monotonic(self) -> float:
        return self.now_s


def test_secret_is_made_once_and_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = load_secret(path)
    assert len(first) == 64
    assert load_secret(path) == first
    assert path.stat().st_mode & 0o077 == 0


def test_secret_too_short_or_in_no_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc")
    for path in (tmp_path / "short", tmp_path / "no" / "such"):
        with pytest.raises(InvalidConfig, match=r"auth\.secret\.file"):
            load_secret(path)
    with pytest.raises(InvalidConfig, match=r"auth\.jwt\.key\.file"):
        load_key(str(tmp_path / "none"))


def test_key_set_is_read_anew_for_an_unknown_key_but_not_all_the_time(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    path = tmp_path / "jwks.json"
    path.write_text('{"keys": []}')
    claims = {"sub": "alice", "exp": NOW // 1000 + 60}
    token = jwt.encode(claims, key, "ES256", headers={"kid": "k2"})

    async def story() -> None:
        clock = Clock()
        keys = Keys(Tokens(b"x" * 32, Trust(("ES256",)), 1000), str(path), clock)
        await keys.start()
        path.write_text(json.dumps({"keys": [{**jwk, "kid": "k2", "alg": "ES256"}]}))
        with pytest.raises(TokenRefused):
            await keys.verified(token)
        clock.now_s += 11
        assert (await keys.verified(token)).user == "alice"
        path.write_text("not json")
        clock.now_s += 11
        stranger = jwt.encode(claims, key, "ES256", headers={"kid": "k3"})
        with pytest.raises(TokenRefused):
            await keys.verified(stranger)
        assert (await keys.verified(token)).user == "alice"

    asyncio.run(story())
