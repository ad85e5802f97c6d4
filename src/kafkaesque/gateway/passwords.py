"""Password hashing: argon2id in a small thread pool. Passwords never reach the log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

T = TypeVar("T")

PASSWORD_LENGTH_MAX = 256
WORKERS = 2
WAITING_MAX = 200
"""Each takes about 50 ms and 64 MiB; beyond this limit clients are asked to retry."""


class TooBusy(Exception):
    """Too many passwords wait to be hashed."""


class Passwords:
    """Hashes and verifies passwords. `cheap` is for tests: its hashes are easily guessed."""

    def __init__(self, *, cheap: bool = False) -> None:
        self._hasher = (
            PasswordHasher(time_cost=1, memory_cost=64, parallelism=1)
            if cheap
            else PasswordHasher()
        )
        self._threads = ThreadPoolExecutor(WORKERS, thread_name_prefix="argon2")
        self._waiting = 0
        self._decoy: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run(self._hasher.hash, password)

    async def verify(self, password_hash: str, password: str) -> bool:
        return await self._run(self._verify, password_hash, password)

    async def verify_decoy(self, password: str) -> None:
        """Takes as long as `verify`, so that the time does not reveal which names exist."""
        if self._decoy is None:
            self._decoy = await self.hash("decoy")
        await self.verify(self._decoy, password)

    def _verify(self, password_hash: str, password: str) -> bool:
        try:
            return self._hasher.verify(password_hash, password)
        except (VerificationError, InvalidHashError):
            return False

    async def _run(self, function: Callable[..., T], *arguments: str) -> T:
        if self._waiting >= WAITING_MAX:
            raise TooBusy
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._threads, function, *arguments)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
