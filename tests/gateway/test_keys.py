from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from kafkaesque.gateway.keys import TokenVerifier, load_key, load_secret
from kafkaesque.gateway.rules.tokens import TokenRefused, Tokens, TrustedIssuer
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.model.ids import TimestampMs

NOW = TimestampMs(1_790_000_000_000)


class Clock:
    """A clock that advances only when a test moves it."""

    now_s = 1000.0

    def wall_ms(self) -> TimestampMs:
        return NOW

    def monotonic(self) -> float:
        return self.now_s


def test_the_secret_is_created_once_and_read_by_all(tmp_path: Path) -> None:
    path = tmp_path / "key"
    first = load_secret(path)
    assert len(first) == 64
    assert load_secret(path) == first
    assert path.stat().st_mode & 0o077 == 0


def test_a_short_secret_or_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("abc")
    for path in (tmp_path / "short", tmp_path / "no" / "such"):
        with pytest.raises(InvalidConfig, match=r"auth\.secret\.file"):
            load_secret(path)
    with pytest.raises(InvalidConfig, match=r"auth\.jwt\.key\.file"):
        load_key(str(tmp_path / "none"))


def test_the_key_set_is_read_again_for_an_unknown_key_at_a_bounded_rate(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    path = tmp_path / "jwks.json"
    path.write_text('{"keys": []}')
    claims = {"sub": "alice", "exp": NOW // 1000 + 60}
    token = jwt.encode(claims, key, "ES256", headers={"kid": "k2"})

    async def story() -> None:
        clock = Clock()
        keys = TokenVerifier(Tokens(b"x" * 32, TrustedIssuer(("ES256",)), 1000), str(path), clock)
        await keys.start()
        path.write_text(json.dumps({"keys": [{**jwk, "kid": "k2", "alg": "ES256"}]}))
        with pytest.raises(TokenRefused):
            await keys.verify(token)
        clock.now_s += 11
        assert (await keys.verify(token)).user == "alice"
        path.write_text("not json")
        clock.now_s += 11
        stranger = jwt.encode(claims, key, "ES256", headers={"kid": "k3"})
        with pytest.raises(TokenRefused):
            await keys.verify(stranger)
        assert (await keys.verify(token)).user == "alice"

    asyncio.run(story())


class KeySite:
    """A key set as an identity provider serves it. Tests change its response."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.body = b'{"keys": []}'
        self.status = 200
        """0: what is not even HTTP."""
        self.asked = 0


@contextmanager
def key_site() -> Iterator[KeySite]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked += 1
            if site.status == 0:
                self.wfile.write(b"this is no HTTP\r\n\r\n")
                return
            self.send_response(site.status)
            self.send_header("Content-Length", str(len(site.body)))
            self.end_headers()
            self.wfile.write(site.body)

        def log_message(self, *_: object) -> None:
            """Writes no log line. Tests read `asked`."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        site = KeySite(f"http://127.0.0.1:{server.server_port}/jwks.json")
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def test_a_key_set_over_http_follows_a_rotation_at_a_bounded_rate() -> None:
    private = {kid: ec.generate_private_key(ec.SECP256R1()) for kid in ("old", "new")}

    def published(*kids: str) -> bytes:
        found = [
            json.loads(jwt.algorithms.ECAlgorithm.to_jwk(private[k].public_key())) for k in kids
        ]
        rows = [{**jwk, "kid": kid, "alg": "ES256"} for jwk, kid in zip(found, kids, strict=True)]
        return json.dumps({"keys": rows}).encode()

    def token(kid: str, key: str) -> str:
        claims = {"sub": "alice", "exp": NOW // 1000 + 60}
        return jwt.encode(claims, private[key], "ES256", headers={"kid": kid})

    async def story(site: KeySite) -> None:
        clock = Clock()
        keys = TokenVerifier(Tokens(b"x" * 32, TrustedIssuer(("ES256",)), 1000), site.url, clock)
        site.body = published("old")
        await keys.start()
        for _ in range(3):
            assert (await keys.verify(token("old", "old"))).user == "alice"
        assert site.asked == 1, "a key that is known needs no asking"
        site.body = published("old", "new")
        clock.now_s += 11
        fresh = await asyncio.gather(*(keys.verify(token("new", "new")) for _ in range(20)))
        assert {identity.user for identity in fresh} == {"alice"}
        assert site.asked == 2, "twenty at once wait for one answer"

        async def refused(text: str) -> None:
            with pytest.raises(TokenRefused):
                await keys.verify(text)

        for second in range(30):
            await asyncio.gather(
                *(refused(token(f"made-up-{second}-{n}", "new")) for n in range(5))
            )
            clock.now_s += 1
        assert site.asked == 2 + 2, "once in ten seconds, whatever keys tokens name"
        for site.status in (503, 0):
            clock.now_s += 11
            await refused(token("made-up", "new"))
        assert site.asked == 6
        assert (await keys.verify(token("old", "old"))).user == "alice", "what is known stays"

    with key_site() as site:
        asyncio.run(story(site))


def test_a_key_set_site_that_is_down_at_start_is_retried_later() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    jwk = {**json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key())), "kid": "k"}
    token = jwt.encode({"sub": "alice", "exp": NOW // 1000 + 60}, key, "ES256", {"kid": "k"})

    async def story(site: KeySite) -> None:
        clock = Clock()
        site.status = 503
        keys = TokenVerifier(Tokens(b"x" * 32, TrustedIssuer(("ES256",)), 1000), site.url, clock)
        await keys.start()
        with pytest.raises(TokenRefused):
            await keys.verify(token)
        site.status, site.body = 200, json.dumps({"keys": [jwk]}).encode()
        clock.now_s += 11
        assert (await keys.verify(token)).user == "alice"

    with key_site() as site:
        asyncio.run(story(site))
