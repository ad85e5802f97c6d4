"""A broker for each test, and one that can be given settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.broker.server.local_broker import LocalBroker

MakeBroker = Callable[..., LocalBroker]


@pytest.fixture
def make_broker(tmp_path: Path) -> Iterator[MakeBroker]:
    """A broker with settings, dots as underscores."""
    with ExitStack() as stack:

        def make(**settings: str) -> LocalBroker:
            named = {name.replace("_", "."): value for name, value in settings.items()}
            return stack.enter_context(LocalBroker(tmp_path / "data", named))

        yield make


@pytest.fixture
def broker(make_broker: MakeBroker) -> LocalBroker:
    return make_broker()
