"""A program that runs for election and takes a lock again and again, through kazoo's recipes.

`python -m kafkaesque.lab.faults.election_client SERVERS NAME SESSION_TIMEOUT_S` prints a line of JSON for
each change: `what` it holds (`connection`, `lead` or `lock`), whether it `has` it now, when (CLOCK_MONOTONIC,
the same in all processes of a machine), and the address of the server it is connected to. As kazoo's
documentation asks of its users, it gives up everything it holds when its connection is lost.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Final

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException
from kazoo.retry import KazooRetry

ELECTION: Final = "/recipes/election"
LOCK: Final = "/recipes/lock"
HELD_S: Final = 0.02
_RETRY_S: Final = 0.05


class ElectionClient:
    def __init__(self, servers: str, name: str, session_timeout_s: float) -> None:
        self._name = name
        retry = KazooRetry(max_tries=-1, delay=_RETRY_S, backoff=1, max_delay=0.2)
        self.client = KazooClient(
            hosts=servers, timeout=session_timeout_s, connection_retry=retry, command_retry=retry
        )
        self._suspended = threading.Event()
        self._has: dict[str, bool] = {}
        self._guard = threading.Lock()
        self.client.add_listener(self._state_changed)

    def run(self) -> None:
        self.client.start(timeout=60)
        threading.Thread(target=self._take_lock, daemon=True).start()
        while True:
            self._suspended.clear()
            try:
                self.client.Election(ELECTION, self._name).run(self._lead)
            except KazooException:
                time.sleep(_RETRY_S)

    def _lead(self) -> None:
        self._report("lead", True)
        self._suspended.wait()
        self._report("lead", False)

    def _take_lock(self) -> None:
        while True:
            try:
                with self.client.Lock(LOCK, self._name):
                    self._report("lock", True)
                    self._suspended.wait(HELD_S)
                    self._report("lock", False)
            except KazooException:
                time.sleep(_RETRY_S)

    def _state_changed(self, state: str) -> None:
        """Called by kazoo as soon as the connection is lost or restored."""
        if state != KazooState.CONNECTED:
            for what in ("lead", "lock", "connection"):
                self._report(what, False)
            self._suspended.set()
        else:
            self._report("connection", True)
            self._suspended.clear()

    def _report(self, what: str, has: bool) -> None:
        with self._guard:
            if self._has.get(what, False) == has:
                return
            if has and not self.client.connected:
                return
            self._has[what] = has
            line = {
                "what": what,
                "has": has,
                "at_ns": time.monotonic_ns(),
                "server": self._server(),
            }
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

    def _server(self) -> str:
        """The address of the server; empty while not connected."""
        try:
            host, port = self.client._connection._socket.getpeername()[:2]
        except (AttributeError, OSError):
            return ""
        return f"{host}:{port}"


if __name__ == "__main__":
    ElectionClient(sys.argv[1], sys.argv[2], float(sys.argv[3])).run()
