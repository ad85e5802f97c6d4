"""Measures the console: page weight, first paint, server time on a large cluster, and a search over a
million records.

    nice -n 10 .venv/bin/python benchmarks/console.py [--topics 1000] [--partitions 3] [--groups 1000]
        [--records 1000000] [--asks 300] [--json]

The broker and the console run in processes of their own; pages are requested one at a time. Server time
is measured by the console itself and sent in Server-Timing, so it excludes the network and the client.
Weight and first paint are measured by Chromium with an empty cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafkaesque.client.wire.address import parse_address
from kafkaesque.client.wire.asyncio_connection import AsyncConnection
from kafkaesque.console.web.pages import PAGES
from kafkaesque.events.tasks import dead_topic
from kafkaesque.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaesque.wire.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kafkaesque.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

TOPICS_AT_ONCE = 10
NAMES = {"/topics/{name}": "topic-0001", "/groups/{name:path}": "group-0001",
         "/tasks/{name}": "chores"}  # fmt: skip
VARIANTS = ("/topics?sort=-rate&page=3", "/topics?q=topic-07", "/topics/topic-0001?tab=settings",
            "/topics/topic-0001?tab=messages", "/groups?sort=-lag")  # fmt: skip
SERVER_TIME = re.compile(r"page;dur=([0-9.]+)")
PAINTS = 10


def all_pages() -> list[str]:
    """Every page, and some variants of the long lists."""
    plain = [re.sub(r"\{.*\}", NAMES.get(page.pattern, ""), page.pattern)
             for page in PAGES]  # fmt: skip
    return [*plain, *VARIANTS]


def start(*arguments: str) -> tuple[subprocess.Popen[str], dict[str, str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "kafkaesque.cli.main", *arguments],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("ready "):
            return process, dict(word.split("=", 1) for word in line.split()[1:])
    raise SystemExit(f"{arguments[0]} did not start")


async def fill(address: str, topics: int, partitions: int, groups: int) -> None:
    """Create topics, and groups with committed offsets in one topic each."""
    link = await AsyncConnection.open(parse_address(address))
    wanted = [*(f"topic-{n:04}" for n in range(topics)), dead_topic(NAMES["/tasks/{name}"])]
    for first in range(0, len(wanted), TOPICS_AT_ONCE):
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=1,
                               assignments=[], configs=[])
                for name in wanted[first : first + TOPICS_AT_ONCE]
            ]
        )  # fmt: skip
        response = await link.call(request, CreateTopicsResponse)
        failed = [item for item in response.topics if item.error_code]
        if failed:
            raise SystemExit(f"{failed[0].name}: error {failed[0].error_code}")
    # The first FindCoordinator request creates the offsets topic.
    await link.call(
        FindCoordinatorRequest(key="group-0000"), FindCoordinatorResponse, version_max=3
    )
    for n in range(groups):
        committed = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=0, committed_metadata=""
            )
            for index in range(partitions)
        ]
        topic = OffsetCommitRequestTopic(name=f"topic-{n % topics:04}", partitions=committed)
        commit = OffsetCommitRequest(group_id=f"group-{n:04}", member_id="", topics=[topic])
        for _ in range(50):
            done = await link.call(commit, OffsetCommitResponse, version_max=9)
            if not any(item.error_code for item in done.topics[0].partitions):
                break
            await asyncio.sleep(0.2)  # the coordinator may still be loading
        else:
            raise SystemExit("the groups cannot commit")
    link.close()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=300) as response:
        return bytes(response.read())


def wait_until_sampled(url: str, topics: int, groups: int) -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        seen = json.loads(get(f"{url}/api/overview"))
        if seen["topics"] >= topics and seen["groups"] >= groups and seen["size_bytes"] is not None:
            return
        time.sleep(0.5)
    raise SystemExit("the console did not show all topics and groups within 300 s")


def paint(url: str, pages: Sequence[str]) -> dict[str, dict[str, float]]:
    """Compressed bytes on the wire with headers, and milliseconds to the first paint.

    Both are medians of several visits with an empty cache.
    """
    from playwright.sync_api import sync_playwright

    found = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for path in pages:
            visits = [_visit(browser, url + path) for _ in range(PAINTS)]
            found[path] = {
                name: statistics.median(visit[name] for visit in visits) for name in visits[0]
            }
        browser.close()
    return found


def _visit(browser: Any, address: str) -> dict[str, float]:
    context = browser.new_context()
    page = context.new_page()
    sizes: list[int] = []
    session = context.new_cdp_session(page)
    session.send("Network.enable")
    session.on("Network.loadingFinished", lambda event: sizes.append(event["encodedDataLength"]))
    page.goto(address, wait_until="load")
    page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    context.close()
    return {"weight_bytes": sum(sizes), "first_paint_ms": round(painted, 1)}


def time_pages(url: str, asks: int) -> dict[str, dict[str, float]]:
    """Server time of each page, measured by the server."""
    found = {}
    for page in all_pages():
        _server_ms(url + page)
        took = sorted(_server_ms(url + page) for _ in range(asks))
        found[page] = {
            "asks": len(took),
            "p50_ms": round(took[len(took) // 2], 2),
            "p99_ms": round(took[int(len(took) * 0.99)], 2),
            "max_ms": round(took[-1], 2),
        }
    return found


def _server_ms(address: str) -> float:
    with urllib.request.urlopen(address, timeout=300) as response:
        response.read()
        measured = SERVER_TIME.search(response.headers.get("Server-Timing", ""))
    if measured is None:
        raise SystemExit(f"the response of {address} has no Server-Timing header")
    return float(measured[1])


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def watch_ten(url: str, pid: int, seconds: float = 10.0) -> float:
    """CPU usage of the server, in cores, with ten live pages open."""

    def follow(page: str) -> None:
        query = urllib.parse.urlencode({"_page": page, "_series": "records_in,lag"})
        with urllib.request.urlopen(f"{url}/live?{query}", timeout=60) as stream:
            ends = time.monotonic() + seconds + 1
            while time.monotonic() < ends:
                stream.read1(1 << 20)

    with ThreadPoolExecutor(10) as threads:
        for page in ("/", "/topics", "/groups", "/raft", "/brokers", "/", "/topics", "/groups",
                     "/topics/topic-0001", "/groups/group-0001"):  # fmt: skip
            threads.submit(follow, page)
        time.sleep(1)
        before = cpu_seconds(pid)
        time.sleep(seconds)
        return (cpu_seconds(pid) - before) / seconds


def fill_records(bootstrap: str, records: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 1_000_000,
                         "queue.buffering.max.messages": 500_000})  # fmt: skip
    for n in range(records):
        value = b'{"id": %d, "user": {"id": %d, "name": "Gregor"}, "state": "open"}' % (n, n % 5000)
        while True:
            try:
                producer.produce("topic-0000", key=b"%d" % (n % 5000), value=value)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 10_000 == 0:
            producer.poll(0)
    producer.flush()


def search(url: str, text: str, records: int) -> dict[str, Any]:
    query = urllib.parse.urlencode(
        {"from": "oldest", "filter": text, "limit": 1000, "scan": records}
    )
    began = time.perf_counter()
    response = json.loads(get(f"{url}/api/topics/topic-0000/messages?{query}"))
    progress = response["progress"]
    return {"filter": text, "scanned": progress["scanned"], "matched": progress["matched"],
            "seconds": round(time.perf_counter() - began, 2)}  # fmt: skip


def measure(options: argparse.Namespace, data: Path) -> dict[str, Any]:
    broker, facts = start("broker", "--data", str(data / "broker"), "--listen", "127.0.0.1:0",
                          "--coordination-listen", "127.0.0.1:0", "--set", "flush=never")  # fmt: skip
    console = None
    try:
        asyncio.run(fill(facts["kafka"], options.topics, options.partitions, options.groups))
        metrics = f"http://{facts['http']}/metrics"
        console, console_facts = start("console", "-b", facts["kafka"], "--port", "0", "--metrics", metrics,
                              "--coordination", facts["coordination"],
                              "--data", str(data / "console"))  # fmt: skip
        url = f"http://{console_facts['http']}"
        wait_until_sampled(url, options.topics, options.groups)
        result: dict[str, Any] = {
            "topics": options.topics, "partitions": options.topics * options.partitions, "groups": options.groups,
            "first_visit": paint(url, ("/", "/topics", "/groups")),
            "pages": time_pages(url, options.asks),
            "look_ms": json.loads(get(f"{url}/api/overview"))["look_ms"],
            "cpu_cores_with_ten_pages": round(watch_ten(url, console.pid), 3),
        }  # fmt: skip
        status = Path(f"/proc/{console.pid}/status").read_text()
        result["resident_mb"] = int(status.split("VmRSS:")[1].split()[0]) // 1024
        if options.records:
            fill_records(facts["kafka"], options.records)
            result["searches"] = [
                search(url, text, options.records)
                for text in ('value contains "nowhere"', "value.user.id == 4711",
                             'key == "4711" and value.id > 500000')
            ]  # fmt: skip
        return result
    finally:
        for process in (console, broker):
            if process is not None:
                process.terminate()
                process.wait(30)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--partitions", type=int, default=3, help="partitions of each topic")
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--asks", type=int, default=300, help="requests per page")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkaesque-console-") as data:
        result = measure(options, Path(data))
    if options.json:
        print(json.dumps(result))
        return
    print(
        f"{result['topics']} topics, {result['partitions']} partitions, {result['groups']} groups"
    )
    for page, seen in result["first_visit"].items():
        print(f"first visit of {page}: {seen['weight_bytes'] / 1000:.1f} kB compressed with all its "
              f"files, first paint after {seen['first_paint_ms']:.0f} ms")  # fmt: skip
    print(f"one sample of the cluster: {result['look_ms']:.0f} ms; resident {result['resident_mb']} MB;"
          f" ten live pages: {result['cpu_cores_with_ten_pages']:.2f} cores")  # fmt: skip
    for page, took in result["pages"].items():
        print(f"  {page:32} p50 {took['p50_ms']:7.1f} ms   p99 {took['p99_ms']:7.1f} ms"
              f"   of {took['asks']}")  # fmt: skip
    for row in result.get("searches", []):
        print(f"  {row['scanned']:,} records searched in {row['seconds']} s, {row['matched']} matched:"
              f" {row['filter']}")  # fmt: skip


if __name__ == "__main__":
    main()
