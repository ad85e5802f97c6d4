"""The service under test, in a thread, on topics of the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
from orders import Service, Topics

from kafkaesque.testing import Namespace

Start = Callable[..., AbstractContextManager[None]]


@pytest.fixture
def topics(kafkaesque: Namespace) -> Topics:
    return Topics(
        orders=kafkaesque.topic("orders"),
        totals=kafkaesque.topic("totals", cleanup_policy="compact"),
        rejected=kafkaesque.topic("rejected"),
    )


@pytest.fixture
def running(kafkaesque: Namespace, topics: Topics) -> Start:
    """`with running():` runs the service, `with running(group="other"):` in another group."""

    @contextmanager
    def run(group: str = "order-totals") -> Iterator[None]:
        service = Service(kafkaesque.bootstrap_servers, kafkaesque.group(group), topics)
        thread = threading.Thread(target=service.run)
        thread.start()
        try:
            yield
        finally:
            service.stop()
            thread.join()

    return run
