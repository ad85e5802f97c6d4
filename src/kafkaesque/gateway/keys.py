"""Keys from files and URLs: the secret of the gateways, and key sets of other issuers (JWKS)."""

from __future__ import annotations

import asyncio
import http.client
import logging
import os
import urllib.request
from pathlib import Path

import msgspec

from kafkaesque.gateway.rules.tokens import (
    KeySet,
    KeyUnknown,
    TokenIdentity,
    TokenRefused,
    Tokens,
    new_secret,
)
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import InvalidConfig

logger = logging.getLogger(__name__)

FETCH_SECONDS_MAX = 5.0
JWKS_SIZE_BYTES_MAX = 256 * 1024
REFRESH_SECONDS_MIN = 10.0
"""Tokens with invented key ids must not cause constant fetches."""
_NO_KEY_SET = (
    OSError,
    http.client.HTTPException,
    msgspec.DecodeError,
    UnicodeDecodeError,
    TokenRefused,
)
"""Errors of a failed fetch."""


def load_secret(path: Path) -> bytes:
    """The secret of the gateways; created if it does not exist. Raises InvalidConfig if it is too short."""
    try:
        # The first process creates it; the others read it.
        with open(path, "x", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(new_secret() + "\n")
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidConfig(f"auth.secret.file: {error}") from None
    secret = path.read_text().strip().encode()
    if len(secret) < 32:
        raise InvalidConfig(f"auth.secret.file: {path} has fewer than 32 characters")
    return secret


def load_key(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise InvalidConfig(f"auth.jwt.key.file: {error}") from None


class TokenVerifier:
    """Verifies tokens. Reads the key set again if it does not contain a token's key."""

    def __init__(self, tokens: Tokens, where: str, clock: Clock) -> None:
        self._tokens = tokens
        self._where = where
        self._clock = clock
        self._fetched_s: float | None = None
        self._lock = asyncio.Lock()

    async def start(self) -> None:
        if self._where:
            await self._refresh()

    async def verify(self, token: str) -> TokenIdentity:
        """Returns the identity of a valid token. Raises TokenRefused otherwise."""
        now_ms = self._clock.wall_ms()
        try:
            return self._tokens.verify(token, now_ms)
        except KeyUnknown:
            if not self._where or not await self._refresh():
                raise
            return self._tokens.verify(token, now_ms)

    async def _refresh(self) -> bool:
        """Returns whether the key set was read after this call."""
        asked_s = self._clock.monotonic()
        async with self._lock:
            if self._fetched_s is not None:
                if self._fetched_s >= asked_s:
                    return True
                if asked_s - self._fetched_s < REFRESH_SECONDS_MIN:
                    return False
            self._fetched_s = self._clock.monotonic()
            try:
                data = await asyncio.to_thread(_fetch, self._where)
                self._tokens.key_set = KeySet.parse(msgspec.json.decode(data, type=dict))
            except _NO_KEY_SET as error:
                logger.warning("key set not read: source=%s: %s", self._where, error)
                return False
            return True


def _fetch(where: str) -> bytes:
    if where.startswith(("https://", "http://")):
        with urllib.request.urlopen(where, timeout=FETCH_SECONDS_MAX) as response:  # noqa: S310
            found: bytes = response.read(JWKS_SIZE_BYTES_MAX)
            return found
    return Path(where).read_bytes()
