"""The named queries on a topic of each test's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from kafkaesque.pipeline.paths import PipelineDirectory


@pytest.fixture
def bench(spark, broker, topic, tmp_path: Path) -> SimpleNamespace:
    """The named queries on this test's own topic, and a context to run them in."""
    from dataclasses import replace

    from kafkaesque.pipeline.operate.context import PipelineContext, PipelineSettings
    from kafkaesque.pipeline.operate.progress import Metrics
    from kafkaesque.pipeline.operate.queries import Query, find_query
    from kafkaesque.pipeline.operate.streaming import QuerySupervisor, Trigger

    settings = PipelineSettings(trends_topic=topic, archive_pattern=topic, alerts_topic=topic)
    kafka = {"bootstrap.servers": broker.bootstrap_servers}
    context = PipelineContext(spark, PipelineDirectory(tmp_path), kafka, "python", settings)

    def query(name: str) -> Query:
        found = find_query(name)
        return found if found.is_pattern else replace(found, topics=topic)

    def run(*names: str) -> None:
        # Spark gives a Python process ten seconds to start; on a busy machine it needs more.
        supervisor = QuerySupervisor(context, Trigger(once=True, restarts_max=5), Metrics())
        results = supervisor.run([query(name) for name in names])
        assert [result.failure for result in results] == [None] * len(names)

    return SimpleNamespace(context=context, query=query, run=run, topic=topic)
