"""What the console costs: page weight, server time on a large cluster, and searching a million records.

    nice -n 10 .venv/bin/python benchmarks/console.py [--topics 1000] [--groups 1000]
        [--records 1000000] [--asks 40] [--json]

One broker in a process of its own; the console in another, asked over HTTP one page at a time. Server
time is what the console itself measures for a page (its /metrics), without the network.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from kafkaesque.console.cluster.link import KafkaLink, Security
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
PAGES = ("/", "/topics", "/topics?sort=-rate&page=3", "/topics?q=topic-07", "/topics/topic-0001",
         "/groups", "/groups?sort=-lag", "/groups/group-0001", "/brokers", "/raft",
         "/events")  # fmt: skip
ASSETS = ("console.css", "uplot.css", "theme.js", "uplot.js", "console.js", "charts.js", "forms.js",
          "keys.js", "morph.js", "icon.svg")  # fmt: skip


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


async def fill(address: str, topics: int, groups: int) -> None:
    """Topics of three partitions, and groups that have committed to one topic each."""
    host, _, port = address.rpartition(":")
    link = await KafkaLink.open(host, int(port), Security())
    for first in range(0, topics, TOPICS_AT_ONCE):
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=f"topic-{n:04}", num_partitions=3, replication_factor=1,
                               assignments=[], configs=[])
                for n in range(first, min(first + TOPICS_AT_ONCE, topics))
            ]
        )  # fmt: skip
        answer = await link.call(request, CreateTopicsResponse)
        failed = [item for item in answer.topics if item.error_code]
        if failed:
            raise SystemExit(f"{failed[0].name}: error {failed[0].error_code}")
    # The topic of committed offsets is made when somebody asks for a coordinator.
    await link.call(
        FindCoordinatorRequest(key="group-0000"), FindCoordinatorResponse, version_max=3
    )
    for n in range(groups):
        partitions = [
            OffsetCommitRequestPartition(
                partition_index=index, committed_offset=0, committed_metadata=""
            )
            for index in range(3)
        ]
        topic = OffsetCommitRequestTopic(name=f"topic-{n % topics:04}", partitions=partitions)
        commit = OffsetCommitRequest(group_id=f"group-{n:04}", member_id="", topics=[topic])
        for _ in range(50):
            done = await link.call(commit, OffsetCommitResponse, version_max=9)
            if not any(item.error_code for item in done.topics[0].partitions):
                break
            await asyncio.sleep(0.2)  # the coordinator may still be loading
        else:
            raise SystemExit("the groups cannot commit")
    link.close()


def ask(url: str, packed: bool = False) -> bytes:
    headers = {"Accept-Encoding": "gzip"} if packed else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=300) as answer:
        return bytes(answer.read())


def wait_until_seen(url: str, topics: int, groups: int) -> None:
    ends = time.monotonic() + 300
    while time.monotonic() < ends:
        seen = json.loads(ask(f"{url}/api/overview"))
        if seen["topics"] >= topics and seen["groups"] >= groups and seen["size_bytes"] is not None:
            return
        time.sleep(0.5)
    raise SystemExit("the console does not see it all")


def weigh(url: str) -> dict[str, int]:
    """Bytes over the wire of the first page, with all that it asks for."""
    html = ask(f"{url}/", packed=True)
    version = gzip.decompress(html).decode().split("/static/", 1)[1].split("/", 1)[0]
    assets = {name: len(ask(f"{url}/static/{version}/{name}", packed=True)) for name in ASSETS}
    return {"html": len(html), **assets, "total": len(html) + sum(assets.values())}


def time_pages(url: str, asks: int) -> dict[str, dict[str, float]]:
    found = {}
    for page in PAGES:
        ask(url + page)
        took = []
        for _ in range(asks):
            began = time.perf_counter()
            ask(url + page)
            took.append((time.perf_counter() - began) * 1000)
        took.sort()
        found[page] = {"p50_ms": took[len(took) // 2], "p99_ms": took[int(len(took) * 0.99)]}
    return found


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def watch_ten(url: str, pid: int, seconds: float = 10.0) -> float:
    """CPU of the server, in cores, with ten live pages open."""

    def look(page: str) -> None:
        query = urllib.parse.urlencode({"_page": page, "_series": "records_in,lag"})
        with urllib.request.urlopen(f"{url}/live?{query}", timeout=60) as stream:
            ends = time.monotonic() + seconds + 1
            while time.monotonic() < ends:
                stream.read1(1 << 20)

    with ThreadPoolExecutor(10) as threads:
        for page in ("/", "/topics", "/groups", "/raft", "/brokers", "/", "/topics", "/groups",
                     "/topics/topic-0001", "/groups/group-0001"):  # fmt: skip
            threads.submit(look, page)
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
    answer = json.loads(ask(f"{url}/api/topics/topic-0000/messages?{query}"))
    progress = answer["progress"]
    return {"filter": text, "scanned": progress["scanned"], "matched": progress["matched"],
            "seconds": round(time.perf_counter() - began, 2)}  # fmt: skip


def measure(options: argparse.Namespace, data: Path) -> dict[str, Any]:
    broker, facts = start("broker", "--data", str(data / "broker"), "--listen", "127.0.0.1:0",
                          "--set", "flush=never")  # fmt: skip
    console = None
    try:
        asyncio.run(fill(facts["kafka"], options.topics, options.groups))
        metrics = f"http://{facts['http']}/metrics"
        console, told = start("console", "-b", facts["kafka"], "--port", "0", "--metrics", metrics,
                              "--data", str(data / "console"))  # fmt: skip
        url = f"http://{told['http']}"
        wait_until_seen(url, options.topics, options.groups)
        result: dict[str, Any] = {
            "topics": options.topics, "partitions": options.topics * 3, "groups": options.groups,
            "weight_bytes_gzip": weigh(url),
            "pages": time_pages(url, options.asks),
            "look_ms": json.loads(ask(f"{url}/api/overview"))["look_ms"],
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
    parser.add_argument("--groups", type=int, default=1000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--asks", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kafkaesque-console-") as data:
        result = measure(options, Path(data))
    if options.json:
        print(json.dumps(result))
        return
    weight = result["weight_bytes_gzip"]
    print(
        f"{result['topics']} topics, {result['partitions']} partitions, {result['groups']} groups"
    )
    print(f"first page with all its files: {weight['total'] / 1000:.1f} kB compressed")
    print(f"one look at the cluster: {result['look_ms']:.0f} ms; resident {result['resident_mb']} MB;"
          f" ten live pages: {result['cpu_cores_with_ten_pages']:.2f} cores")  # fmt: skip
    for page, took in result["pages"].items():
        print(f"  {page:32} p50 {took['p50_ms']:7.1f} ms   p99 {took['p99_ms']:7.1f} ms")
    for row in result.get("searches", []):
        print(f"  {row['scanned']:,} records searched in {row['seconds']} s, {row['matched']} found:"
              f" {row['filter']}")  # fmt: skip


if __name__ == "__main__":
    main()
