"""What running queries show over HTTP: the feed that a console reads, metrics, health.

    GET /status            {"queries": [status of each query of this process]}
    GET /progress/NAME     {"query": NAME, "batches": [the last batches, oldest first]}
    GET /metrics           Prometheus
    GET /healthz, /readyz  200; the second once every query runs, 503 before and after a failure

A status is what `DATA/queries/NAME/status.json` holds, a batch a line of its `progress.jsonl`; both
files say the same to who has no port. Threads of their own: the main one waits for Spark.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from kafkaesque.pipeline.operate.progress import Metrics
from kafkaesque.pipeline.operate.status import read_status
from kafkaesque.pipeline.paths import DataDirectory

BATCHES_SHOWN_MAX: Final = 200
_JSON: Final = "application/json"
_TEXT: Final = "text/plain; charset=utf-8"


class StatusPage:
    """Serves from `start` until `stop`."""

    def __init__(self, data: DataDirectory, names: Sequence[str], metrics: Metrics) -> None:
        self._data = data
        self._names = tuple(names)
        self._metrics = metrics
        self._server: ThreadingHTTPServer | None = None

    def start(self, host: str, port: int) -> str:
        """The address that is really listened on; OSError if it is taken."""
        page = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                code, kind, body = page.answer(self.path.partition("?")[0])
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody reads an access log of health checks."""

        self._server = ThreadingHTTPServer((host, port), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        bound_host, bound_port = self._server.server_address[:2]
        return f"{bound_host!s}:{bound_port}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status code, content type and body for a path."""
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, generate_latest(self._metrics.registry)
        if path == "/healthz":
            return 200, _TEXT, b"ok\n"
        if path == "/readyz":
            waiting = [item["query"] for item in self._statuses() if item["state"] != "running"]
            if waiting:
                return 503, _TEXT, f"not running: {', '.join(waiting)}\n".encode()
            return 200, _TEXT, b"ready\n"
        if path == "/status":
            return 200, _JSON, json.dumps({"queries": self._statuses()}).encode()
        name = path.removeprefix("/progress/")
        if name in self._names:
            return 200, _JSON, json.dumps({"query": name, "batches": self._feed(name)}).encode()
        return 404, _TEXT, b"there are /status, /progress/NAME, /metrics, /healthz, /readyz\n"

    def _statuses(self) -> list[dict[str, Any]]:
        return [
            {"state": "starting", **read_status(self._data.status(name)), "query": name}
            for name in self._names
        ]

    def _feed(self, name: str) -> list[dict[str, Any]]:
        path = self._data.feed(name)
        if not path.exists():
            return []
        lines = path.read_text().splitlines()[-BATCHES_SHOWN_MAX:]
        return [json.loads(line) for line in lines]
