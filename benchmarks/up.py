"""Seconds from `kafkaesque up` to the first chat message delivered and to the first trend; its memory.

    nice -n 10 .venv/bin/python benchmarks/up.py [--spark | --no-spark] [--fresh-clone] [--brokers 3] [--json]

Everything on free ports, in a temporary directory, once without and once with Spark. The message goes
from one client to another, each at a gateway of its own. Memory is the sum over all processes: resident
(what `kafkaesque status` shows, shared pages counted in each) and proportional (shared pages once).
With --fresh-clone it is `make up` in a new clone of this repository, `make setup` included.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kafkaesque.edge.client import ClientClosed, EdgeClient, Happening, RequestFailed
from kafkaesque.edge.client_state import Credentials
from kafkaesque.up.control_client import control_file, running_processes

ROOT = Path(__file__).resolve().parents[1]
WITHIN_S = 900.0
POLL_S = 0.05
SETTLE_S = 10.0
"""Memory is read this long after the last of the figures."""
CONVERSE_S = 60.0
"""Then two others try: on a busy machine a back end may not have been there when the first asked."""
PEOPLE = ("gregor", "grete")


@contextlib.contextmanager
def running_up(
    options: argparse.Namespace, home: Path, data: Path, *, spark: bool
) -> Iterator[Any]:
    words = ["--json", "--port", "0", "--http-port", "0", "--data", str(data)]
    words += ["--brokers", str(options.brokers), *([] if spark else ["--no-spark"])]
    command = [sys.executable, "-m", "kafkaesque.cli.main", "up", *words]
    if options.fresh_clone:
        clone = home / "clone"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        command = ["make", "-s", "-C", str(clone), "up", f"UP={' '.join(words)}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(OSError, ValueError):
            os.kill(json.loads(control_file(data).read_text())["pid"], signal.SIGINT)
        try:
            process.wait(120)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def descendants(pid: int) -> list[int]:
    """With the process itself, parents before children; those that ended meanwhile are left out."""
    found = [pid]
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        children = [
            int(child) for task in tasks for child in (task / "children").read_text().split()
        ]
    except OSError:
        return found
    return found + [each for child in children for each in descendants(child)]


def memory(pid: int) -> dict[str, Any]:
    totals = {"processes": 0, "resident_mb": 0.0, "proportional_mb": 0.0}
    for each in descendants(pid):
        try:
            text = Path(f"/proc/{each}/smaps_rollup").read_text()
        except OSError:
            continue
        sizes = {line.split(":")[0]: int(line.split()[1]) for line in text.splitlines()[1:]}
        totals["processes"] += 1
        totals["resident_mb"] += sizes["Rss"] / 1024
        totals["proportional_mb"] += sizes["Pss"] / 1024
    return {name: round(value) for name, value in totals.items()}


async def facts_of(data: Path, *names: str) -> list[dict[str, str]]:
    """What these processes said when they were ready."""
    while True:
        found = {
            item["name"]: item for item in await asyncio.to_thread(running_processes, data) or ()
        }
        if all(found.get(name, {}).get("state") == "running" for name in names):
            return [found[name]["facts"] for name in names]
        await asyncio.sleep(POLL_S)


async def first_message(data: Path) -> None:
    """Return once one person has what the other wrote. What is not there yet is tried again."""
    gateways = await facts_of(data, "gateway-0", "gateway-1")
    suffix = 0
    while True:
        try:
            async with asyncio.timeout(CONVERSE_S):
                await converse([facts["tcp"] for facts in gateways], suffix)
                return
        except (TimeoutError, ClientClosed, RequestFailed, OSError):
            suffix += 1
            await asyncio.sleep(POLL_S)


async def converse(addresses: list[str], suffix: int) -> None:
    writer, reader = (
        EdgeClient([address], Credentials(name=f"{name}{suffix or ''}", password="metamorphosis",
                                          register=True))
        for address, name in zip(addresses, PEOPLE, strict=True)
    )  # fmt: skip
    async with reader, writer:
        await writer.send("message.send", {"to": reader.user, "text": "What has happened to me?"})
        async for event in reader.events():
            if isinstance(event, Happening) and event.type == "message.new":
                return
    raise ClientClosed("no message", 0)


async def first_trend(data: Path) -> str:
    [console] = await facts_of(data, "console")

    def look() -> Any:
        with urllib.request.urlopen(f"http://{console['http']}/api/trends", timeout=10) as answer:
            return json.load(answer)["tags"]

    while True:
        try:
            tags = await asyncio.to_thread(look)
        except OSError:
            tags = []
        if tags:
            return str(tags[0]["hashtag"])
        await asyncio.sleep(POLL_S)


async def watch(process: Any, data: Path, began_s: float, spark: bool) -> dict[str, Any]:
    """Seconds since `began_s`."""
    seconds: dict[str, Any] = {}

    async def note(name: str, waiting: Any) -> None:
        await waiting
        seconds[name] = round(time.monotonic() - began_s, 1)

    async def said_up() -> None:
        while True:
            line = await asyncio.to_thread(process.stdout.readline)
            if not line:
                raise SystemExit("up ended before it was up")
            if line.startswith("{"):
                return

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as group:
        group.create_task(note("up_s", said_up()))
        group.create_task(note("first_message_s", first_message(data)))
        if spark:
            group.create_task(note("first_trend_s", first_trend(data)))
    return seconds


def measure(options: argparse.Namespace, *, spark: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="kafkaesque-up-") as home:
        data = Path(home) / "data"
        began_s = time.monotonic()
        with running_up(options, Path(home), data, spark=spark) as process:
            seconds = asyncio.run(watch(process, data, began_s, spark))
            time.sleep(SETTLE_S)
            asked = {"brokers": options.brokers, "fresh_clone": options.fresh_clone}
            return {"spark": spark, **asked, **seconds, **memory(process.pid)}


def sentence(result: dict[str, Any]) -> str:
    trend = f"first trend after {result['first_trend_s']} s, " if result["spark"] else ""
    return (
        f"{'with' if result['spark'] else 'without'} Spark: up after {result['up_s']} s, "
        f"first chat message delivered after {result['first_message_s']} s, {trend}"
        f"{result['processes']} processes, {result['proportional_mb']} MB of memory "
        f"({result['resident_mb']} MB resident)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--spark", action="store_true", help="only with")
    which.add_argument("--no-spark", action="store_true", help="only without")
    parser.add_argument("--fresh-clone", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--brokers", type=int, default=3)
    options = parser.parse_args()
    # Whoever ends this ends `up` as well.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs = [True] if options.spark else [False] if options.no_spark else [False, True]
    results = []
    for spark in runs:
        results.append(measure(options, spark=spark))
        if not options.json:
            print(sentence(results[-1]), flush=True)
    if options.json:
        print(json.dumps(results))


if __name__ == "__main__":
    main()
