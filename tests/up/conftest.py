from __future__ import annotations

from collections.abc import Iterator

import pytest

from kafkaesque.testing.reserved_ports import ReservedPorts


@pytest.fixture
def free() -> Iterator[ReservedPorts]:
    with ReservedPorts() as ports:
        yield ports
