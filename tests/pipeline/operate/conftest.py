"""The catalogue's queries on a topic of each test's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkaesque.pipeline.places import Places


@pytest.fixture
def bench(spark, broker, topic, tmp_path: Path) -> SimpleNamespace:
    """The catalogue's queries on this test's own topic, and a context to run them in."""
    from dataclasses import replace

    from kafkaesque.pipeline.operate.catalog import Query, find
    from kafkaesque.pipeline.operate.context import Context, Knobs
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.running import Supervisor, Trigger

    knobs = Knobs(trends_topic=topic, archive_pattern=topic, alerts_topic=topic)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    context = Context(spark, Places(tmp_path), kafka, "python", knobs)

    def query(name: str) -> Query:
        found = find(name)
        return found if found.is_pattern else replace(found, topics=topic)

    def run(*names: str) -> None:
        # Spark gives a Python process ten seconds to start; on a busy machine one needs more.
        supervisor = Supervisor(context, Trigger(once=True, restarts_max=5), Metrics())
        outcomes = supervisor.run([query(name) for name in names])
        assert [outcome.failure for outcome in outcomes] == [None] * len(names)

    return SimpleNamespace(context=context, query=query, run=run, topic=topic)
