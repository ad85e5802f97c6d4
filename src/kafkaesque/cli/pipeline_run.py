"""The process of `kafkaesque pipeline run`, and the rows of `pipeline list`."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafkaesque.cli.failures import CannotConnect, ExitCode
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.service_process import host_port
from kafkaesque.pipeline.operate.context import SETTINGS, RunContext
from kafkaesque.pipeline.operate.progress import Metrics
from kafkaesque.pipeline.operate.queries import SETS, all_queries, expand, find_query
from kafkaesque.pipeline.operate.reports import REPORTS, Report, run_report
from kafkaesque.pipeline.operate.status_page import QueryPages
from kafkaesque.pipeline.operate.streaming import Supervisor, Trigger
from kafkaesque.pipeline.topics import declared, ensure_topics
from kafkaesque.service.child_process import print_ready
from kafkaesque.service.process import facts_file, stop_callback
from kafkaesque.service.status_page import MakePage, in_thread

FACTS_FILE = "pipeline.json"
PROGRESS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of `pipeline run`."""

    names: tuple[str, ...]
    once: bool
    interval_s: float
    rows_max: int | None
    start: str
    restarts_max: int
    http_listen: str
    end_with_stdin: bool


def listed() -> list[dict[str, Any]]:
    """One row for each query, set and report."""
    rows: list[dict[str, Any]] = [
        {
            "name": query.name,
            "kind": "stream",
            "reads": query.topics or "every topic",
            "tables": [table.name for table in query.tables],
            "doc": query.doc,
        }
        for query in all_queries().values()
    ]
    rows += [
        {"name": name, "kind": "set", "reads": "", "tables": [], "doc": ", ".join(queries)}
        for name, queries in SETS.items()
    ]
    for name, report in REPORTS.items():
        doc = (report.__doc__ or "").strip().splitlines()[0]
        rows.append({"name": name, "kind": "report", "reads": "tables", "tables": [], "doc": doc})
    return rows


def listed_settings() -> list[dict[str, Any]]:
    return [
        {"name": item.name, "default": item.show(item.default), "about": item.doc}
        for item in SETTINGS.values()
    ]


def progress_printer(name: str, screen: Screen) -> Callable[[str, int, int], None]:
    """A callback that prints the progress of long work every few seconds."""
    due_s = time.monotonic() + PROGRESS_EVERY_S

    def show(what: str, done: int, total: int) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + PROGRESS_EVERY_S
            share = f" ({done / total:.0%})" if total else ""
            screen.note(f"{name}: {done:,} of {total:,} {what}{share}")

    return show


def run_queries(wanted: Wanted, make_context: Callable[[], RunContext], screen: Screen) -> int:
    """Run until all have ended; returns the exit code."""
    host, port = host_port(wanted.http_listen)
    queries = [find_query(name) for name in expand(wanted.names)]
    stopping = threading.Event()
    with stop_callback(stopping.set, wanted.end_with_stdin):
        context = make_context()
        needed = [name for query in queries for name in query.topic_names(context.settings)]
        for name in ensure_topics(context.kafka, declared(needed)):
            screen.note(f"created topic {name}")
        metrics = Metrics()
        trigger = Trigger(
            wanted.interval_s, wanted.once, wanted.rows_max, wanted.start, wanted.restarts_max
        )
        supervisor = Supervisor(context, trigger, metrics, stopping)
        names = [query.name for query in queries]
        pages = QueryPages(context.data, names, metrics).pages()
        with _serving(pages, host, port) as http:
            facts = {"queries": ",".join(names), "http": http}
            facts |= {"data": str(context.data.root), "pid": str(os.getpid())}
            with facts_file(context.data.root / FACTS_FILE, facts):
                results = supervisor.run(queries, partial(print_ready, facts))
    rows = [{"query": result.query, "failure": result.failure} for result in results]
    screen.document({"queries": rows}, lambda: None)
    failed = [result for result in results if result.failure]
    for result in failed:
        screen.warn(f"{result.query}: {result.failure}")
    return int(ExitCode.FAILED if failed else ExitCode.OK)


@contextlib.contextmanager
def _serving(pages: Mapping[str, MakePage], host: str, port: int) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(in_thread(pages, host, port))
        except OSError as error:
            raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None
        yield address


def run_reports(names: list[str], context: RunContext, screen: Screen) -> int:
    """Run one after another; the exit code is 1 if the quality report found a problem."""
    alarmed = False
    ensure_topics(context.kafka, declared([context.settings.alerts_topic]))
    for name in names:
        report = run_report(name, context)
        _show_report(report, screen)
        alarmed = alarmed or (name == "quality" and bool(report.alerts))
    return int(ExitCode.FAILED if alarmed else ExitCode.OK)


def _show_report(report: Report, screen: Screen) -> None:
    content = {"report": report.name, "rows": report.rows, "alerts": report.alerts}
    document = json.loads(json.dumps(content, default=str))
    columns = [Column(key, key) for key in (report.rows[0] if report.rows else {})]
    screen.document(document, lambda: screen.table(columns, document["rows"], "nothing to report"))
