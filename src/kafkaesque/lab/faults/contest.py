"""Contenders as processes, and what each had when: nobody may lead or hold while another does."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from kafkaesque.lab.faults.target import TargetUnwell

END_OF_TIME_NS: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Turn:
    """Somebody had something from one moment to another."""

    who: str
    begun_ns: int
    ended_ns: int


@dataclass(slots=True)
class Contestant:
    """One process, and what it said. Its reader is a thread of ours."""

    name: str
    process: subprocess.Popen[bytes]
    changes: list[dict[str, int | str | bool]] = field(default_factory=list)

    def has_since(self, what: str) -> dict[str, int | str | bool] | None:
        """Its newest change about `what`, if that says it has it."""
        newest = next((one for one in reversed(self.changes) if one["what"] == what), None)
        return newest if newest is not None and newest["has"] else None

    def turns(self, what: str, ended_ns: int) -> list[Turn]:
        """One that is still open ended when the process did."""
        found, since = [], None
        for change in [one for one in self.changes if one["what"] == what]:
            if change["has"]:
                since = int(change["at_ns"])
            elif since is not None:
                found.append(Turn(self.name, since, int(change["at_ns"])))
                since = None
        return found if since is None else [*found, Turn(self.name, since, ended_ns)]


class Contest:
    """Starts contestants, kills them, and keeps the history of all."""

    def __init__(self, servers: str, session_timeout_s: float) -> None:
        self._servers = servers
        self._timeout_s = session_timeout_s
        self._lives = 0
        self.living: dict[str, Contestant] = {}
        self._turns: dict[str, list[Turn]] = {"lead": [], "lock": []}

    def start(self, place: str) -> None:
        """Another one in `place`, under a name of its own."""
        self._lives += 1
        name = f"{place}-{self._lives}"
        module = "kafkaesque.lab.faults.contender"
        process = subprocess.Popen(
            [sys.executable, "-m", module, self._servers, name, str(self._timeout_s)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        contestant = self.living[place] = Contestant(name, process)
        threading.Thread(target=self._listen, args=(contestant,), daemon=True).start()

    @staticmethod
    def _listen(contestant: Contestant) -> None:
        if contestant.process.stdout is not None:
            with contestant.process.stdout as lines:
                for line in lines:
                    contestant.changes.append(json.loads(line))

    def kill(self, place: str) -> None:
        """kill -9; what it had ends now."""
        contestant = self.living.pop(place)
        ended_ns = time.monotonic_ns()
        contestant.process.kill()
        contestant.process.wait()
        for what, turns in self._turns.items():
            turns += contestant.turns(what, ended_ns)

    def close(self) -> None:
        for place in tuple(self.living):
            self.kill(place)

    def leader(self, within_s: float) -> tuple[str, int]:
        """The place of who leads, and since when by the monotonic clock in ns."""
        deadline = time.monotonic() + within_s
        while time.monotonic() < deadline:
            for place, contestant in self.living.items():
                if (change := contestant.has_since("lead")) is not None:
                    return place, int(change["at_ns"])
            time.sleep(0.005)
        raise TargetUnwell(f"nobody leads after {within_s:g} s")

    def server_of(self, place: str) -> str:
        """The address of the server that told it that it leads; empty if it leads no longer."""
        change = self.living[place].has_since("lead")
        return "" if change is None else str(change["server"])

    def wait_until_nobody_is_served(self, within_s: float) -> None:
        """Until all have lost their connections, and so whatever they had."""
        deadline = time.monotonic() + within_s
        while served := [
            one.name for one in self.living.values() if one.has_since("connection") is not None
        ]:
            if time.monotonic() > deadline:
                raise TargetUnwell(
                    f"{', '.join(served)} served after {within_s:g} s without a quorum"
                )
            time.sleep(0.005)

    def turns(self, what: str) -> list[Turn]:
        """After `close`."""
        return sorted(self._turns[what], key=lambda turn: turn.begun_ns)


@dataclass(frozen=True, slots=True)
class Span:
    """From one moment to another by the monotonic clock."""

    begun_ns: int
    ended_ns: int


def intrusions(turns: Collection[Turn], spans: Collection[Span]) -> list[str]:
    """Sentences about whoever had it in a time in which nobody could have been told so."""
    found = []
    for span in spans:
        for turn in turns:
            begun_ns, ended_ns = (
                max(turn.begun_ns, span.begun_ns),
                min(turn.ended_ns, span.ended_ns),
            )
            if begun_ns < ended_ns:
                lap_ms = (ended_ns - begun_ns) / 1e6
                found.append(f"{turn.who} had it for {lap_ms:.1f} ms without a quorum")
    return found


def overlaps(turns: list[Turn]) -> list[str]:
    """Sentences about any two who had it at once; `turns` in the order of their beginnings."""
    found = []
    latest: Turn | None = None
    for turn in turns:
        if latest is not None and turn.begun_ns < latest.ended_ns:
            lap_ms = (min(turn.ended_ns, latest.ended_ns) - turn.begun_ns) / 1e6
            found.append(f"{latest.who} and {turn.who} both had it for {lap_ms:.1f} ms")
        if latest is None or turn.ended_ns > latest.ended_ns:
            latest = turn
    return found
