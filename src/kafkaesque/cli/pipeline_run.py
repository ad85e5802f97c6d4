"""The process behind `kafkaesque pipeline run`, and what `pipeline list` shows."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kafkaesque.cli.failures import CannotConnect, ExitCode
from kafkaesque.cli.render import Column, Screen
from kafkaesque.cli.service_process import (
    end_orphan_after,
    facts_file,
    host_port,
    say_ready,
)
from kafkaesque.pipeline.operate.context import SETTINGS, RunContext
from kafkaesque.pipeline.operate.progress import Metrics
from kafkaesque.pipeline.operate.queries import SETS, all_queries, expand, find_query
from kafkaesque.pipeline.operate.reports import REPORTS, Report, run_report
from kafkaesque.pipeline.operate.status_page import StatusPage
from kafkaesque.pipeline.operate.streaming import Supervisor, Trigger
from kafkaesque.pipeline.topics import declared, ensure_topics

FACTS_FILE = "pipeline.json"
TELL_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `pipeline run` was asked for."""

    names: tuple[str, ...]
    once: bool
    interval_s: float
    rows_max: int | None
    start: str
    restarts_max: int
    http_listen: str
    end_with_stdin: bool


def listed() -> list[dict[str, Any]]:
    """Queries, sets and reports, each as a row."""
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


def teller(name: str, screen: Screen) -> Callable[[str, int, int], None]:
    """Says every few seconds how far long work is."""
    due_s = time.monotonic() + TELL_EVERY_S

    def tell(what: str, done: int, total: int) -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            due_s = time.monotonic() + TELL_EVERY_S
            share = f" ({done / total:.0%})" if total else ""
            screen.note(f"{name}: {done:,} of {total:,} {what}{share}")

    return tell


def run_queries(wanted: Wanted, make_context: Callable[[], RunContext], screen: Screen) -> int:
    """Until all have ended; the exit code."""
    host, port = host_port(wanted.http_listen)
    queries = [find_query(name) for name in expand(wanted.names)]
    stopping = threading.Event()
    with _signals(stopping.set, wanted.end_with_stdin):
        context = make_context()
        needed = [name for query in queries for name in query.topic_names(context.settings)]
        for name in ensure_topics(context.kafka, declared(needed)):
            screen.note(f"topic {name} was not there and is made")
        metrics = Metrics()
        trigger = Trigger(
            wanted.interval_s, wanted.once, wanted.rows_max, wanted.start, wanted.restarts_max
        )
        supervisor = Supervisor(context, trigger, metrics, stopping)
        names = [query.name for query in queries]
        page = StatusPage(context.data, names, metrics)
        facts = {"queries": ",".join(names), "http": _listen(page, host, port)}
        facts |= {"data": str(context.data.root), "pid": str(os.getpid())}
        with facts_file(context.data.root / FACTS_FILE, facts):
            results = supervisor.run(queries, lambda: say_ready(facts))
        page.stop()
    rows = [{"query": result.query, "failure": result.failure} for result in results]
    screen.document({"queries": rows}, lambda: None)
    failed = [result for result in results if result.failure]
    for result in failed:
        screen.warn(f"{result.query}: {result.failure}")
    return int(ExitCode.FAILED if failed else ExitCode.OK)


def _listen(page: StatusPage, host: str, port: int) -> str:
    try:
        return page.start(host, port)
    except OSError as error:
        raise CannotConnect(f"cannot listen: {error}", "port 0 takes a free one") from None


@contextlib.contextmanager
def _signals(stop: Callable[[], None], end_with_stdin: bool) -> Iterator[None]:
    """SIGTERM, Ctrl-C and the end of a supervisor's pipe stop the queries between two batches."""

    def handle(_number: int, _frame: object) -> None:
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    if end_with_stdin:

        def watch() -> None:
            sys.stdin.buffer.read()
            stop()
            end_orphan_after()

        threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_reports(names: list[str], context: RunContext, screen: Screen) -> int:
    """One after another; the exit code says whether the archive is as it must be."""
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
