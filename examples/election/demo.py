"""A master election from start to end: a race, a dead master, a take-over, a return.

    python demo.py --server 127.0.0.1:2181

Starts three app servers, kills the master (kill -9), waits until another took over, starts the dead
one again and sees it come back as a follower. Ends with 0 if all of that came true.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0
APP_SERVER = Path(__file__).with_name("app_server.py")


class Member:
    """One app server process and the last thing that it said."""

    def __init__(self, name: str, options: list[str]) -> None:
        self.name = name
        self.last: dict[str, Any] = {}
        self.process = subprocess.Popen(
            [sys.executable, str(APP_SERVER), "--name", name, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        for line in self.process.stdout or ():
            self.last = json.loads(line)
            print(f"  {line.strip()}", flush=True)

    @property
    def role(self) -> str | None:
        return self.last.get("role")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


def settled(members: list[Member]) -> Member | None:
    """The master, once there is exactly one and all others follow it."""
    masters = [member for member in members if member.role == "master"]
    followed = {member.last.get("master") for member in members}
    return masters[0] if len(masters) == 1 and followed == {masters[0].name} else None


def wait_for_master(members: list[Member]) -> Member:
    deadline = time.monotonic() + TIMEOUT_S
    while (master := settled(members)) is None:
        if time.monotonic() > deadline:
            raise SystemExit("no master in time")
        time.sleep(0.02)
    return master


def tell(options: list[str]) -> None:
    members: list[Member] = []
    try:
        print("three app servers race for the node:", flush=True)
        members = [Member(f"app-{number}", options) for number in (1, 2, 3)]
        first = wait_for_master(members)
        print(f"{first.name} is master; it is killed:", flush=True)
        killed_s = time.monotonic()
        first.kill()
        members.remove(first)
        second = wait_for_master(members)
        took_s = time.monotonic() - killed_s
        print(f"{second.name} took over after {took_s:.1f} s; {first.name} comes back:", flush=True)
        members.append(Member(first.name, options))
        if wait_for_master(members) is not second or members[-1].role != "follower":
            raise SystemExit("the old master did not come back as a follower")
        print(f"{first.name} follows {second.name}", flush=True)
    finally:
        for member in members:
            member.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description="Master election by an ephemeral node.")
    parser.add_argument("--server", default="127.0.0.1:2181", help="ZooKeeper's HOST:PORT[,...]")
    parser.add_argument("--path", default="/clusterx/master")
    parser.add_argument("--session-timeout", default="4.0", metavar="SECONDS")
    given = parser.parse_args()
    tell(
        ["--server", given.server, "--path", given.path, "--session-timeout", given.session_timeout]
    )


if __name__ == "__main__":
    main()
