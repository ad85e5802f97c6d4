from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.gateway.logs import running_kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[str]:
    with running_kafka() as bootstrap:
        yield bootstrap
