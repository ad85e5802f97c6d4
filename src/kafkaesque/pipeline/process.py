"""The process of `pipeline run`: Spark, the queries and the status pages; starts, prints ready, stops."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from kafkaesque.pipeline.errors import CannotListen
from kafkaesque.pipeline.operate.context import PipelineContext
from kafkaesque.pipeline.operate.progress import Metrics
from kafkaesque.pipeline.operate.queries import expand, find_query
from kafkaesque.pipeline.operate.status_page import QueryPages
from kafkaesque.pipeline.operate.streaming import QueryResult, QuerySupervisor, Trigger
from kafkaesque.pipeline.topics import declared, ensure_topics
from kafkaesque.service.child_process import print_ready
from kafkaesque.service.process import facts_file, stop_callback
from kafkaesque.service.status_page import MakePage, in_thread

FACTS_FILE = "pipeline.json"


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """`names` are queries and sets of queries. `http_listen` is the address of the status pages."""

    names: tuple[str, ...]
    trigger: Trigger
    http_listen: tuple[str, int]
    end_with_stdin: bool


def run_queries(
    options: PipelineOptions,
    make_context: Callable[[], PipelineContext],
    notify: Callable[[str], None],
) -> list[QueryResult]:
    """Run until all queries have ended or a signal comes; `notify` gets progress notes for a person.

    `make_context` is called after the signal handlers are set, because it starts Spark. Raises
    PipelineError.
    """
    host, port = options.http_listen
    queries = [find_query(name) for name in expand(options.names)]
    stopping = threading.Event()
    with stop_callback(stopping.set, options.end_with_stdin):
        context = make_context()
        needed = [name for query in queries for name in query.topic_names(context.settings)]
        for name in ensure_topics(context.kafka, declared(needed)):
            notify(f"created topic {name}")
        metrics = Metrics()
        supervisor = QuerySupervisor(context, options.trigger, metrics, stopping)
        names = [query.name for query in queries]
        pages = QueryPages(context.data, names, metrics).pages()
        with _serving(pages, host, port) as http:
            facts = {"queries": ",".join(names), "http": http}
            facts |= {"data": str(context.data.root), "pid": str(os.getpid())}
            with facts_file(context.data.root / FACTS_FILE, facts):
                return supervisor.run(queries, partial(print_ready, facts))


@contextlib.contextmanager
def _serving(pages: Mapping[str, MakePage], host: str, port: int) -> Iterator[str]:
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(in_thread(pages, host, port))
        except OSError as error:
            raise CannotListen(f"cannot listen: {error}", "use port 0 for any free port") from None
        yield address
