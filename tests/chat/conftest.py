from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.gateway.logs import Place, running_kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    with running_kafka() as bootstrap:
        yield bootstrap


@pytest.fixture
def place(kafka: str) -> Iterator[Place]:
    """A log with topics of its own for each test."""
    own = Place(kafka)
    yield own
    asyncio.run(own.log().remove())
