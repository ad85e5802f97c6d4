"""The same small application for each task library: a no-op, a call of 1 ms, and a sender.

They are texts, not modules: a peer's program runs in the peer's own Python, which has neither our package
nor its dependencies. Every call appends (time sent, time started) to a file of its process, so calls and
delays are counted in the same way for all peers, without their help.
"""

from __future__ import annotations

from typing import Final

_ROWS: Final = """\
import os
import struct
import time

_file = None


def note(sent_ns):
    global _file
    if _file is None or _file[0] != os.getpid():
        path = os.path.join(os.environ["BENCH_ROWS"], str(os.getpid()))
        _file = (os.getpid(), os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY))
    os.write(_file[1], struct.pack("<qq", sent_ns, time.time_ns()))

"""

_CELERY: Final = """
import sys

from celery import Celery

app = Celery("peer_app", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_acks_late=True, task_ignore_result=True, worker_prefetch_multiplier=64,
    broker_connection_retry_on_startup=True,
)


@app.task
def noop(sent_ns):
    note(sent_ns)


@app.task
def busy(sent_ns):
    note(sent_ns)
    time.sleep(0.001)


if __name__ == "__main__":
    task = {"noop": noop, "busy": busy}[sys.argv[1]]
    pause_s = float(sys.argv[3])
    with app.producer_or_acquire() as producer:
        for _ in range(int(sys.argv[2])):
            task.apply_async((time.time_ns(),), producer=producer)
            if pause_s:
                time.sleep(pause_s)
"""

_DRAMATIQ: Final = """
import sys

import dramatiq
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_REDIS"]))


@dramatiq.actor
def noop(sent_ns):
    note(sent_ns)


@dramatiq.actor
def busy(sent_ns):
    note(sent_ns)
    time.sleep(0.001)


if __name__ == "__main__":
    actor = {"noop": noop, "busy": busy}[sys.argv[1]]
    pause_s = float(sys.argv[3])
    for _ in range(int(sys.argv[2])):
        actor.send(time.time_ns())
        if pause_s:
            time.sleep(pause_s)
"""

_TASKIQ: Final = """
import asyncio
import sys

from taskiq_redis import RedisStreamBroker

broker = RedisStreamBroker(url=os.environ["BENCH_REDIS"])


@broker.task
async def noop(sent_ns: int) -> None:
    note(sent_ns)


@broker.task
async def busy(sent_ns: int) -> None:
    note(sent_ns)
    await asyncio.sleep(0.001)


async def main():
    task = {"noop": noop, "busy": busy}[sys.argv[1]]
    count, pause_s = int(sys.argv[2]), float(sys.argv[3])
    await broker.startup()
    if pause_s:
        for _ in range(count):
            await task.kiq(time.time_ns())
            await asyncio.sleep(pause_s)
    else:
        for start in range(0, count, 100):
            await asyncio.gather(*(task.kiq(time.time_ns()) for _ in range(min(100, count - start))))
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(main())
"""

_OURS: Final = """
import asyncio
import sys

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.tasks import App

app = App("bench")


@app.task
async def noop(sent_ns: int) -> None:
    note(sent_ns)


@app.task
async def busy(sent_ns: int) -> None:
    note(sent_ns)
    await asyncio.sleep(0.001)


async def main():
    task = {"noop": noop, "busy": busy}[sys.argv[1]]
    count, pause_s = int(sys.argv[2]), float(sys.argv[3])
    async with app.connect(KafkaLog(os.environ["BENCH_KAFKA"])):
        if pause_s:
            for _ in range(count):
                await task.send(time.time_ns())
                await asyncio.sleep(pause_s)
        else:
            for start in range(0, count, 100):
                await asyncio.gather(
                    *(task.send(time.time_ns()) for _ in range(min(100, count - start)))
                )


if __name__ == "__main__":
    asyncio.run(main())
"""

PROGRAMS: Final = {
    "ours": _ROWS + _OURS,
    "celery": _ROWS + _CELERY,
    "dramatiq": _ROWS + _DRAMATIQ,
    "taskiq": _ROWS + _TASKIQ,
}
REQUIREMENTS: Final = (
    "celery==5.7.0",
    "packaging",  # kombu needs it and does not declare it
    "redis<8",
    "dramatiq[redis]",
    "taskiq<0.13",  # taskiq-redis needs what 0.13 has dropped
    "taskiq-redis",
)
