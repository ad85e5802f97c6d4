from __future__ import annotations

import asyncio

import pytest

from kafkaesque.gateway import passwords
from kafkaesque.gateway.passwords import Passwords, TooBusy


def test_a_password_matches_only_its_own_hash() -> None:
    async def story() -> None:
        checks = Passwords(cheap=True)
        hashed = await checks.hash("secret")
        assert hashed.startswith("$argon2id$")
        assert await checks.verify(hashed, "secret")
        assert not await checks.verify(hashed, "Secret")
        assert not await checks.verify("no hash", "secret")
        await checks.verify_decoy("secret")
        checks.close()

    asyncio.run(story())


def test_too_many_waiting_passwords_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "WAITING_MAX", 1)

    async def story() -> None:
        checks = Passwords(cheap=True)
        first = asyncio.create_task(checks.hash("a"))
        await asyncio.sleep(0)
        with pytest.raises(TooBusy):
            await checks.hash("b")
        await first
        checks.close()

    asyncio.run(story())
