"""Election clients as processes, and the checks that no two of them lead or hold a lock at once."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.lab.harness.cluster import TargetFailed
from kafkaesque.testing.waiting import poll_until

_POLL_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class HeldSpan:
    """A client held something from one moment of the monotonic clock to another."""

    who: str
    begun_ns: int
    ended_ns: int


@dataclass(slots=True)
class RunningClient:
    """One client process and the changes it has printed."""

    name: str
    process: subprocess.Popen[bytes]
    changes: list[dict[str, int | str | bool]] = field(default_factory=list)

    def has_since(self, what: str) -> dict[str, int | str | bool] | None:
        """The change with which the client acquired `what`; None if it does not hold it now."""
        newest = next((one for one in reversed(self.changes) if one["what"] == what), None)
        return newest if newest is not None and newest["has"] else None

    def spans(self, what: str, ended_ns: int) -> list[HeldSpan]:
        """When the client held `what`; a span that is still open ends with the process."""
        found, since = [], None
        for change in [one for one in self.changes if one["what"] == what]:
            if change["has"]:
                since = int(change["at_ns"])
            elif since is not None:
                found.append(HeldSpan(self.name, since, int(change["at_ns"])))
                since = None
        return found if since is None else [*found, HeldSpan(self.name, since, ended_ns)]


class ElectionClients:
    """Starts and kills client processes, one per slot, and keeps the history of all."""

    def __init__(self, servers: str, session_timeout_s: float) -> None:
        self._servers = servers
        self._timeout_s = session_timeout_s
        self._started = 0
        self.running: dict[str, RunningClient] = {}
        self._spans: dict[str, list[HeldSpan]] = {"lead": [], "lock": []}

    def start(self, slot: str) -> None:
        """Start a client in `slot`, with a name of its own."""
        self._started += 1
        name = f"{slot}-{self._started}"
        module = "kafkaesque.lab.faults.election_client"
        process = subprocess.Popen(
            [sys.executable, "-m", module, self._servers, name, str(self._timeout_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        client = self.running[slot] = RunningClient(name, process)
        threading.Thread(target=self._listen, args=(client,), daemon=True).start()

    @staticmethod
    def _listen(client: RunningClient) -> None:
        if client.process.stdout is not None:
            with client.process.stdout as lines:
                for line in lines:
                    client.changes.append(json.loads(line))

    def kill(self, slot: str) -> None:
        """kill -9; the spans of the client end now."""
        client = self.running.pop(slot)
        ended_ns = time.monotonic_ns()
        client.process.kill()
        client.process.wait()
        for what, spans in self._spans.items():
            spans += client.spans(what, ended_ns)

    def close(self) -> None:
        for slot in tuple(self.running):
            self.kill(slot)

    def leader(self, within_s: float) -> tuple[str, int]:
        """Wait for a leader; returns its slot, and since when it leads (monotonic clock, ns)."""

        def look() -> tuple[str, int] | None:
            for slot, client in self.running.items():
                if (change := client.has_since("lead")) is not None:
                    return slot, int(change["at_ns"])
            return None

        return poll_until(look, "a leader", within_s, poll_s=_POLL_S, error=TargetFailed)

    def server_of(self, slot: str) -> str:
        """The server to which the leader in `slot` is connected; empty if it does not lead any more."""
        change = self.running[slot].has_since("lead")
        return "" if change is None else str(change["server"])

    def wait_until_disconnected(self, within_s: float) -> None:
        """Wait until all clients have lost their connections, and so everything they held."""

        def connected() -> list[str]:
            clients = self.running.values()
            return [one.name for one in clients if one.has_since("connection") is not None]

        poll_until(
            lambda: not connected(),
            lambda: f"the loss of the connections of {', '.join(connected())} without a quorum",
            within_s,
            poll_s=_POLL_S,
            error=TargetFailed,
        )

    def spans(self, what: str) -> list[HeldSpan]:
        """The spans of all clients that have ended."""
        return sorted(self._spans[what], key=lambda span: span.begun_ns)


def held_during(spans: Collection[HeldSpan], without_quorum: Collection[HeldSpan]) -> list[str]:
    """Complaints about clients that held something while there was no quorum to grant it."""
    found = []
    for outage in without_quorum:
        for span in spans:
            begun_ns = max(span.begun_ns, outage.begun_ns)
            ended_ns = min(span.ended_ns, outage.ended_ns)
            if begun_ns < ended_ns:
                lap_ms = (ended_ns - begun_ns) / 1e6
                found.append(f"{span.who} had it for {lap_ms:.1f} ms without a quorum")
    return found


def overlaps(spans: list[HeldSpan]) -> list[str]:
    """Complaints about two clients that held it at once; `spans` sorted by their beginning."""
    found = []
    latest: HeldSpan | None = None
    for span in spans:
        if latest is not None and span.begun_ns < latest.ended_ns:
            lap_ms = (min(span.ended_ns, latest.ended_ns) - span.begun_ns) / 1e6
            found.append(f"{latest.who} and {span.who} both had it for {lap_ms:.1f} ms")
        if latest is None or span.ended_ns > latest.ended_ns:
            latest = span
    return found
