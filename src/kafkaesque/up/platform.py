"""Starts the whole platform in order, runs it until it is to stop, and stops it in order."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kafkaesque.testing.reserved_ports import HOST, ReservedPorts
from kafkaesque.up.brokers import (
    bootstrap_servers,
    broker_services,
    shared_settings,
    start_brokers,
)
from kafkaesque.up.control_server import ControlServer
from kafkaesque.up.plan import Platform, spark_jobs, stages
from kafkaesque.up.supervisor import Service, StartFailed, Supervisor

ENGINES = ("kafka", "zookeeper", "spark")


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The options of `kafkaesque up`. `engines` has addresses by the names of ENGINES."""

    data: Path
    brokers: int
    port: int
    http_port: int
    engines: Mapping[str, str]
    has_services: bool
    has_source: bool
    has_spark: bool
    has_all_jobs: bool


class Reporter(Protocol):
    """Is called at each step, to print it."""

    def service_ready(self, service: Service) -> None: ...

    def service_failed(self, service: Service, failure: StartFailed) -> None:
        """The supervisor will start it again."""
        ...

    def platform_ready(self, services: Sequence[Service], platform: Platform) -> None:
        """Everything but Spark has been started."""
        ...

    def stopping(self) -> None: ...


def plan_brokers(
    options: UpOptions, settings: Mapping[str, str], free: ReservedPorts
) -> list[Service]:
    """`settings` are those of the environment, which the brokers inherit. Raises NoSuchPorts.

    With another Kafka one broker is enough, for coordination; with another ZooKeeper too, none.
    """
    count = options.brokers
    if "kafka" in options.engines:
        count = 0 if "zookeeper" in options.engines else 1
    if count == 0:
        return []
    shared = shared_settings(count, settings, ())
    return broker_services(options.data, options.port, count, shared, free, options.http_port)


async def run_platform(
    options: UpOptions,
    brokers: Sequence[Service],
    ports: Mapping[int, int],
    stopping: asyncio.Event,
    reporter: Reporter,
) -> None:
    """Run until `stopping` is set. Raises StartFailed if a broker does not start."""
    supervisor = Supervisor()
    control = ControlServer(supervisor, options.data)
    try:
        await control.open(HOST)
        platform = await _start(supervisor, options, brokers, ports, stopping, reporter)
        if platform is not None:
            reporter.platform_ready(supervisor.services, platform)
            if options.has_services and options.has_spark:
                jobs = spark_jobs(platform, all_jobs=options.has_all_jobs)
                await _start_stage(supervisor, jobs, stopping, reporter)
            await stopping.wait()
    finally:
        reporter.stopping()
        await supervisor.stop()
        await control.close()


async def _start(
    supervisor: Supervisor,
    options: UpOptions,
    brokers: Sequence[Service],
    ports: Mapping[int, int],
    stopping: asyncio.Event,
    reporter: Reporter,
) -> Platform | None:
    """None if `stopping` is set before everything is up."""
    if brokers and not await start_brokers(supervisor, brokers, stopping, reporter.service_ready):
        return None
    platform = Platform(
        data=options.data,
        ports=ports,
        bootstrap=options.engines.get("kafka") or bootstrap_servers(brokers),
        zookeeper=options.engines.get("zookeeper")
        or ",".join(broker.facts["coordination"] for broker in brokers),
        spark_master=options.engines.get("spark"),
    )
    if options.has_services:
        for stage in stages(platform, source=options.has_source):
            if not await _start_stage(supervisor, stage, stopping, reporter):
                return None
    return platform


async def _start_stage(
    supervisor: Supervisor,
    services: Sequence[Service],
    stopping: asyncio.Event,
    reporter: Reporter,
) -> bool:
    """Start all at once; the platform does without those that fail until they run.

    False if `stopping` is set.
    """

    async def start(service: Service) -> None:
        failure = await supervisor.try_start(service)
        if failure is None:
            reporter.service_ready(service)
        else:
            reporter.service_failed(service, failure)

    starts = asyncio.ensure_future(asyncio.gather(*map(start, services)))
    stop = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((starts, stop), return_when=asyncio.FIRST_COMPLETED)
        return not stopping.is_set()
    finally:
        for task in (starts, stop):
            task.cancel()
        await asyncio.gather(starts, stop, return_exceptions=True)
