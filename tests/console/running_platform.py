"""A small `kafkaesque up` in a thread: the supervisor, the control API and some services.

One broker with coordination, a chat backend, a gateway with a client, and a worker that has run
tasks, retried some and dead-lettered one. All of them are real processes.
"""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.console import chores
from tests.console.running_console import WITHIN_S
from tests.waiting import until

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.edge.client import EdgeClient
from kafkaesque.edge.client_state import Credentials
from kafkaesque.testing.reserved_ports import ReservedPorts
from kafkaesque.up.brokers import broker_services
from kafkaesque.up.control_client import control_file
from kafkaesque.up.control_server import ControlServer
from kafkaesque.up.plan import Platform, stages
from kafkaesque.up.ports import choose_ports
from kafkaesque.up.supervisor import ProcessState, Service, Supervisor

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS_MAX = 240.0
TIMER_DELAY_S = 86_400.0
SETTINGS = ("flush=never", "offsets.topic.num.partitions=4", "group.initial.rebalance.delay.ms=0")
USER = "gregor"
CHORES = 5


class RunningPlatform:
    """`with RunningPlatform(data) as platform:` everything runs, and a client is connected."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.bootstrap = ""
        self.coordination = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="up", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: BaseException | None = None

    @property
    def control_file(self) -> Path:
        return control_file(self.data)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._loop is not None and self._stopping is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(2 * WITHIN_S)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as error:  # noqa: BLE001  raised in __enter__
            self._failure = error
        finally:
            self._ready.set()

    async def _live(self) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        supervisor = Supervisor()
        control = ControlServer(supervisor, self.data)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(START_SECONDS_MAX):
                    await control.open("127.0.0.1")
                    await self._start(supervisor, stack.enter_context(ReservedPorts()))
                    await self._connect(supervisor, stack)
                    await self._do_chores()
                self._ready.set()
                await self._stopping.wait()
        finally:
            await supervisor.stop()
            await control.close()

    async def _start(self, supervisor: Supervisor, free: ReservedPorts) -> None:
        [broker] = broker_services(self.data, 0, 1, SETTINGS, free)
        await supervisor.start(broker)
        self.bootstrap, self.coordination = broker.facts["kafka"], broker.facts["coordination"]
        around = Platform(self.data, choose_ports(0, {}, free), self.bootstrap, self.coordination)
        planned = {item.name: item for stage in stages(around, source=False) for item in stage}
        wanted = (planned["chat-0"], planned["gateway-0"], self._worker())
        for service in wanted:
            service.ready_seconds_max = START_SECONDS_MAX
            # As in `up`: on a busy machine a service may need a second attempt.
            await supervisor.try_start(service)
            await until(lambda service=service: service.state is ProcessState.RUNNING)

    def _worker(self) -> Service:
        words = (
            *("tasks", "worker", "tests.console.chores:app", "--timers", "--name", "tasks-0"),
            *("--bootstrap-server", self.bootstrap, "--zookeeper-connect", self.coordination),
            *("--data", str(self.data / "tasks-0"), "--end-with-stdin"),
        )
        command = ["env", f"PYTHONPATH={ROOT}", sys.executable, "-m", "kafkaesque.cli.main", *words]
        return Service("tasks-0", command, self.data / "logs" / "tasks-0.log", stage=2)

    async def _connect(self, supervisor: Supervisor, stack: AsyncExitStack) -> None:
        address = supervisor.find("gateway-0").facts["tcp"]
        credentials = Credentials(name=USER, password="metamorphosis", register=True)
        client = EdgeClient([address], credentials)
        stack.push_async_callback(client.close)
        await client.start()

    async def _do_chores(self) -> None:
        async with chores.app.connect(KafkaLog(self.bootstrap)):
            for number in range(CHORES):
                await chores.sweep.send(f"room-{number}")
            await chores.fetch_water.send(1)
            await chores.move_a_mountain.send("Everest")
            await chores.sweep.send_after(TIMER_DELAY_S, "tomorrow")
