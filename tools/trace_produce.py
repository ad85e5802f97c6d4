"""Counts the functions that one acks=all record runs through in a three-broker cluster.

    python tools/trace_produce.py            # the counts
    python tools/trace_produce.py --list     # and every function, by file, in the order of first call

Three brokers run in this process, each in its own thread, with default settings. A profiler hook
counts calls of Python functions of the broker, first while the cluster is idle, then while records
are produced one at a time. A function is on the path if every record calls it at least once more
than idling does. Compiled functions, lambdas and comprehensions do not count.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType, FunctionType

os.environ["KAFKAESQUE_PURE"] = "modules"  # a profiler sees no compiled function

from confluent_kafka import Producer

import kafkaesque
from kafkaesque.testing import Cluster

PACKAGE = str(Path(kafkaesque.__file__).parent)
RECORDS = 30
SECONDS_PER_RECORD = 0.1


class Calls:
    """Counts calls in every thread that is started after `install`."""

    def __init__(self) -> None:
        self.counts: Counter[CodeType] = Counter()
        self.is_counting = False

    def install(self) -> None:
        threading.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.is_counting and frame.f_code.co_filename.startswith(PACKAGE):
            self.counts[frame.f_code] += 1

    def take(self) -> Counter[CodeType]:
        counts, self.counts = self.counts, Counter()
        return counts


def trace() -> list[CodeType]:
    """The functions on the path, in the order in which they were first called."""
    calls = Calls()
    calls.install()
    with tempfile.TemporaryDirectory() as directory, Cluster(3, data=directory) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        cluster.create_topic("traced", partitions=1, replication_factor=3)
        for _ in range(3):  # metadata, connections, caches
            produce(producer)
        calls.is_counting = True
        time.sleep(RECORDS * SECONDS_PER_RECORD)
        idle = calls.take()
        for _ in range(RECORDS):
            produce(producer)
            time.sleep(SECONDS_PER_RECORD)
        calls.is_counting = False
        busy = calls.take()
    return [
        code
        for code, count in busy.items()
        if count - idle[code] >= RECORDS and not code.co_name.startswith("<")
    ]


def produce(producer: Producer) -> None:
    producer.produce("traced", b"value")
    if producer.flush(30):
        sys.exit("the record was not acknowledged within 30 s")


def property_getters() -> set[CodeType]:
    properties = [one for one in gc.get_objects() if isinstance(one, property)]
    return {one.fget.__code__ for one in properties if isinstance(one.fget, FunctionType)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="print every function")
    options = parser.parse_args()
    path = trace()
    files = {code.co_filename for code in path}
    packages = {Path(name).relative_to(PACKAGE).parent for name in files}
    if options.list:
        for name in dict.fromkeys(code.co_filename for code in path):
            print(Path(name).relative_to(PACKAGE))
            for code in path:
                if code.co_filename == name:
                    print(f"    {code.co_qualname} (line {code.co_firstlineno})")
    properties = len(property_getters() & set(path))
    print(
        f"{len(path)} functions, {properties} of them properties, "
        f"in {len(files)} files of {len(packages)} packages"
    )


if __name__ == "__main__":
    main()
