"""The composition root: builds a broker, and starts and stops its parts in order."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

from kafkaesque.broker.cluster.cluster import (
    FORWARD_KINDS,
    Cluster,
    ForwardedRequests,
)
from kafkaesque.broker.cluster.controller_log import ControllerLog
from kafkaesque.broker.cluster.replicated_machine import StateFile
from kafkaesque.broker.cluster.rules.broker_requests import BrokerRegistration
from kafkaesque.broker.cluster.rules.dynamic_config import DynamicConfig
from kafkaesque.broker.joining import Seeds, introduce_broker
from kafkaesque.broker.partitions.coordinators import Coordinators
from kafkaesque.broker.partitions.environment import Changes, Environment
from kafkaesque.broker.partitions.group_coordinator import GroupCoordinator, new_registry
from kafkaesque.broker.partitions.log_cleaner import LogCleaner
from kafkaesque.broker.partitions.partition import Partition
from kafkaesque.broker.partitions.partition_table import PartitionTable
from kafkaesque.broker.replication.flusher import Flusher
from kafkaesque.broker.replication.link import LinkConfig
from kafkaesque.broker.replication.links import Links
from kafkaesque.broker.replication.opening import batch_payload, open_replica
from kafkaesque.broker.replication.raft_journal import RaftJournal
from kafkaesque.broker.replication.replica import Replica
from kafkaesque.broker.replication.replica_set import CONTROLLER_CONFIG, TICK_SECONDS, ReplicaSet
from kafkaesque.broker.replication.rules.peer_hello import PeerIdentity
from kafkaesque.broker.replication.rules.state_machine import StateMachine
from kafkaesque.broker.replication.sync_journal import SyncJournal
from kafkaesque.broker.server.addresses import (
    Address,
    advertised_address,
    listen_address,
    parse_address,
)
from kafkaesque.broker.server.connection import Connection
from kafkaesque.broker.server.context import BrokerIdentity, Context
from kafkaesque.broker.server.dispatch import Dispatcher, api_ranges
from kafkaesque.broker.server.handler import Handler
from kafkaesque.broker.server.handlers import load_handlers
from kafkaesque.broker.server.listener import Listener, bind
from kafkaesque.broker.server.page_loader import PageLoader
from kafkaesque.broker.server.peer_inbox import PeerInbox, PeerService
from kafkaesque.broker.server.readiness import readiness
from kafkaesque.broker.server.rules.fetch_sessions import FetchSessions
from kafkaesque.broker.server.stats import BrokerStats
from kafkaesque.broker.server.transaction_calls import (
    REQUEST_KINDS,
    RequestsOfBrokers,
    TransactionCalls,
    open_transactions,
)
from kafkaesque.broker.side_services import SideServices
from kafkaesque.broker.storage.config import LogConfig
from kafkaesque.broker.storage.directory import DataDirectory, Meta
from kafkaesque.broker.storage.log import Log
from kafkaesque.broker.storage.open_files import OpenFiles
from kafkaesque.model.clock import Clock
from kafkaesque.model.errors import check
from kafkaesque.model.ids import CONTROLLER_GROUP, NodeId, member_id
from kafkaesque.model.limits import MIB
from kafkaesque.model.settings import BrokerConfig
from kafkaesque.service.clock import SystemClock
from kafkaesque.service.status_page import Page, PageServer, text_page

logger = logging.getLogger(__name__)

ADDRESS_FILE = "broker.json"
DRAIN_SECONDS = 2.0
"""How long requests in progress may take when the broker stops. Ends long polls."""
HAND_OVER_SECONDS = 5.0
"""How long a stopping broker tries to hand over its leaderships."""
LOOP_SAMPLE_SECONDS = 0.25
IDLE_CHECK_SECONDS = 10.0
FLUSH_CHECK_SECONDS = 1.0
ADVANCE_SECONDS = 0.2
SCRUB_SECONDS = 0.5
"""Pause between two scrub steps of a megabyte: a terabyte takes about a week, at negligible
cost."""
LINK_CONFIG = LinkConfig(lease_margin_seconds=0.5)
"""A lease lasts half a second from a ping. A peer that answered it had read every heartbeat sent
before it, the last at most 350 ms old (`heartbeats_since`), and votes for no other leader within
nine ticks (900 ms) of a heartbeat."""
CONTROLLER_LOG_CONFIG = LogConfig(segment_bytes=MIB)
"""Small segments, because entries covered by a snapshot of the tables are deleted by segment."""


class Node:
    """One broker. Call `start`, then `stop`. `failed` resolves if it cannot continue."""

    __slots__ = (
        "_clean",
        "_clock",
        "_coordinators",
        "_data",
        "_files",
        "_flusher",
        "_http",
        "_listener",
        "_peer_services",
        "_raft",
        "_tasks",
        "config",
        "context",
        "failed",
        "http_address",
        "kafka_address",
        "services",
    )

    def __init__(self, config: BrokerConfig, clock: Clock | None = None) -> None:
        self.config = config
        self._clock: Clock = clock or SystemClock()
        self._tasks: list[asyncio.Task[None]] = []
        self._clean = True
        self._http: PageServer | None = None
        self.http_address: Address | None = None

    # -- start ----------------------------------------------------------------------------------

    async def start(self) -> None:
        """Starts in order: binds the port, locks the data, determines the identity, joins Raft,
        serves.

        If anything fails, raises and leaves nothing open.
        """
        loop = asyncio.get_running_loop()
        self.failed: asyncio.Future[BaseException] = loop.create_future()
        async with AsyncExitStack() as undo:
            server = await self._bind(undo)
            seeds = Seeds(self.config.join)
            incarnation = await self._own_data(seeds, loop, undo)
            cluster = await self._build_cluster(incarnation, loop, undo)
            transactions = open_transactions(cluster, self._clock, loop, self.config)
            self._coordinators = Coordinators(cluster.groups, transactions.coordinator)
            handlers = load_handlers()
            self.context = self._new_context(cluster, transactions, loop, handlers)
            dispatcher = Dispatcher(self.context, handlers)
            self.services = self._open_services(cluster, dispatcher)
            self._peer_services: Mapping[range, PeerService] = {
                FORWARD_KINDS: ForwardedRequests(
                    cluster.controller_log, dispatcher.serve_forwarded
                ),
                REQUEST_KINDS: RequestsOfBrokers(dispatcher.serve_forwarded),
                **self.services.by_kind(),
            }
            self._listener = Listener(
                server,
                cluster.settings,
                self.context.stats,
                dispatcher,
                cluster.links.adopt,
                self._fail,
            )
            undo.push_async_callback(self._listener.close, 0)
            await self._listener.serve()
            self._take_part(cluster, undo)
            await self._register(cluster, seeds, incarnation)
            await self.services.serve(self.config)
            await self._open_http(undo)
            self._write_address_file()
            undo.pop_all()
        self._start_background()

    async def _bind(self, undo: AsyncExitStack) -> asyncio.Server:
        wanted = listen_address(self.config)
        server = await bind(lambda: Connection(self._listener), wanted.host, wanted.port)
        undo.callback(server.close)
        host, port, *_ = server.sockets[0].getsockname()
        self.kafka_address = advertised_address(self.config, Address(host, port))
        return server

    async def _own_data(
        self, seeds: Seeds, loop: asyncio.AbstractEventLoop, undo: AsyncExitStack
    ) -> int:
        """Locks the data directory and determines its identity. Returns the incarnation: the number
        of starts on it."""
        self._data = DataDirectory(self.config.log_dirs)
        undo.callback(self._data.close)
        incarnation = self._data.count_start()
        meta = self._data.meta
        node_id = NodeId(self.config.node_id)
        if meta is not None:
            self._data.set_meta(Meta(meta.cluster_id, node_id, meta.directory_id, meta.generation))
            return incarnation
        directory_id = uuid4()
        if seeds:
            me = PeerIdentity(node_id, 0, "", incarnation)
            request = self._registration(directory_id, incarnation)
            cluster_id, generation = await introduce_broker(seeds, me, request, loop, self._clock)
        else:
            cluster_id, generation = new_cluster_id(), 0
        self._data.set_meta(Meta(cluster_id, node_id, directory_id, generation))
        return incarnation

    def _registration(self, directory_id: Any, incarnation: int) -> BrokerRegistration:
        return BrokerRegistration(
            self.config.node_id,
            directory_id,
            self.kafka_address.host,
            self.kafka_address.port,
            self.config.broker_rack,
            incarnation,
        )

    async def _build_cluster(
        self, incarnation: int, loop: asyncio.AbstractEventLoop, undo: AsyncExitStack
    ) -> Cluster:
        """Builds everything that uses the data directory; nothing runs yet."""
        meta = self._meta
        was_clean = self._data.was_clean()
        if not was_clean and incarnation > 0:
            logger.info("the last stop was not clean: every log is checked from its sync point on")
        self._files = OpenFiles(self.config.open_files_max or None)
        undo.callback(self._files.close)
        raft_journal = RaftJournal.open(self._data.raft_path, self._files)
        sync_journal = await asyncio.to_thread(
            SyncJournal.open, self._data.raft_path, self._files, raft_journal.starts()
        )
        is_synced = self.config.flush == "always"
        self._flusher = Flusher(
            loop, sync_journal if is_synced else None, lambda lost: replicas.logs_lost(lost)
        )
        undo.push_async_callback(self._flusher.close)
        links = Links(
            PeerIdentity(meta.node_id, meta.generation, meta.cluster_id, incarnation),
            loop,
            PeerInbox(lambda: replicas, lambda: cluster, lambda: self._peer_services),
            self._clock,
            fail=self._fail,
            config=LINK_CONFIG,
            read_batch=batch_payload,
        )
        undo.push_async_callback(links.close, 0)
        self._raft = replicas = ReplicaSet(
            member_id(meta.node_id, meta.generation),
            raft_journal,
            self._flusher,
            links,
            lambda replica, message: cluster.prefixes.fetch(replica, message),
            self._clock,
            loop.call_soon,
            self._fail,
        )
        leadership_changes: Changes[Partition] = Changes()
        validation = self.config.validation
        env = Environment(loop, self._clock, replicas, leadership_changes, is_synced, validation)
        partitions = PartitionTable(self._data, self._files, env, clean=was_clean)
        groups = GroupCoordinator(partitions, lambda: new_registry(self.config), self._clock, loop)
        controller_log = self._open_controller_log(replicas, is_clean=was_clean)
        cluster = Cluster(
            controller_log,
            partitions,
            groups,
            replicas,
            leadership_changes,
            DynamicConfig(self.config),
            uuid4,
            loop.call_later,
            links,
        )
        return cluster

    def _open_controller_log(self, replicas: ReplicaSet, *, is_clean: bool) -> ControllerLog:
        """Opens the replica of the controller's log. Alone in a new cluster, this node creates the
        log."""
        path = self._data.controller_log_path
        log = Log.open(path, CONTROLLER_LOG_CONFIG, self._files, clean=is_clean)
        replicas.attach(CONTROLLER_GROUP, log)
        first = () if self.config.join else (replicas.member,)

        def new_replica(machine: StateMachine) -> Replica:
            return open_replica(
                CONTROLLER_GROUP,
                log,
                first,
                replicas,
                machine,
                CONTROLLER_CONFIG,
                is_clean=is_clean,
            )

        states = StateFile(path)
        return ControllerLog(states, replicas.raft_journal, self._clock, self._fail, new_replica)

    def _open_services(self, cluster: Cluster, dispatcher: Dispatcher) -> SideServices:
        first = () if self.config.join else (self._raft.member,)
        return SideServices.open(
            self._data.path,
            self._files,
            self._raft,
            cluster,
            dispatcher.serve_forwarded,
            self._clock,
            self._fail,
            first_members=first,
            is_clean=self._data.was_clean(),
        )

    @property
    def _meta(self) -> Meta:
        meta = self._data.meta
        if meta is None:
            check(False, "the data directory has no identity")
            raise AssertionError
        return meta

    def _take_part(self, cluster: Cluster, undo: AsyncExitStack) -> None:
        """Starts messages, ticks and elections."""
        cluster.start(self._coordinators, self._background_ended)
        undo.push_async_callback(cluster.stop)
        cluster.connect_peers()
        self._raft.add(cluster.controller_log.replica)
        if cluster.controller_log.replica.is_alone:
            cluster.controller_log.replica.campaign()
        self.services.coordination.take_part()
        undo.push_async_callback(self.services.stop)
        self._repeat(TICK_SECONDS, self._raft.tick)
        undo.push_async_callback(self._cancel_tasks)

    async def _register(self, cluster: Cluster, seeds: Seeds, incarnation: int) -> None:
        """Registers our address with the controller. Waits for a majority of brokers."""
        request = self._registration(self._meta.directory_id, incarnation)
        registering = asyncio.create_task(cluster.register(request, seeds.addresses))
        self.failed.add_done_callback(lambda _: registering.cancel())
        try:
            await registering
        except asyncio.CancelledError:
            if self.failed.done():
                raise self.failed.result() from None
            raise
        await cluster.wait_settled()

    def _new_context(
        self,
        cluster: Cluster,
        transactions: TransactionCalls,
        loop: asyncio.AbstractEventLoop,
        handlers: Mapping[int, Handler[Any]],
    ) -> Context:
        return Context(
            identity=BrokerIdentity(
                self._meta.cluster_id,
                cluster.node_id,
                self.kafka_address.host,
                self.kafka_address.port,
            ),
            settings=cluster.settings,
            cluster=cluster,
            partitions=cluster.partitions,
            groups=cluster.groups,
            transactions=transactions,
            fetch_sessions=FetchSessions(
                self.config.max_incremental_fetch_session_cache_slots,
                lambda: random.randint(1, 2**31 - 1),  # noqa: S311 - an id, not a secret
            ),
            pages=PageLoader(),
            cleaner=LogCleaner(
                cluster.partitions,
                self._raft.raft_journal,
                lambda: cluster.settings.current,
                self._clock,
            ),
            clock=self._clock,
            loop=loop,
            stats=BrokerStats(),
            api_ranges=lambda: api_ranges(handlers),
            unsent_room_bytes=lambda: self._listener.unsent_room_bytes(),
        )

    async def _open_http(self, undo: AsyncExitStack) -> None:
        if self.config.http_listener:
            wanted = parse_address(self.config.http_listener, "http.listener")
            self._http = PageServer(
                {"/metrics": self._metrics, "/healthz": self._health, "/readyz": self._ready}
            )
            self.http_address = Address(*await self._http.open(wanted.host, wanted.port))
            undo.push_async_callback(self._http.close)

    async def _metrics(self) -> Page:
        # Imported on the first scrape: a broker without monitoring starts faster without it.
        from kafkaesque.broker.server.metrics import CONTENT_TYPE, metrics_text
        from kafkaesque.broker.side_metrics import SideCollector

        sources = self.context, self._listener, self._flusher, self._raft
        return Page(200, CONTENT_TYPE, await metrics_text(*sources, SideCollector(self.services)))

    def _health(self) -> Page:
        if self.failed.done():
            return text_page(503, f"failed: {self.failed.result()}")
        return text_page(200, "ok")

    def _ready(self) -> Page:
        if self.failed.done():
            return text_page(503, f"failed: {self.failed.result()}")
        return readiness(self.context)

    def _write_address_file(self) -> None:
        content = {
            "pid": os.getpid(),
            "node_id": self.config.node_id,
            "kafka": str(self.kafka_address),
            "http": str(self.http_address) if self.http_address else None,
            **self.services.addresses(),
        }
        path = Path(self.config.log_dirs) / ADDRESS_FILE
        path.write_text(json.dumps(content) + "\n")

    # -- work in the background -----------------------------------------------------------------

    def _start_background(self) -> None:
        config, context = self.config, self.context
        self._repeat(config.log_retention_check_interval_ms / 1000, self._maintain)
        self._repeat(config.offsets_retention_check_interval_ms / 1000, self._coordinators.expire)
        self._repeat(IDLE_CHECK_SECONDS, self._listener.close_idle)
        self._repeat(FLUSH_CHECK_SECONDS, context.partitions.flush_due)
        self._repeat(ADVANCE_SECONDS, context.cluster.advance)
        self._repeat(ADVANCE_SECONDS, self.services.coordination.advance)
        self._repeat(SCRUB_SECONDS, context.cluster.scrubber.step)
        if config.log_cleaner_enable:
            self._repeat(0, context.cleaner.turn)
        if config.auto_leader_rebalance_enable:
            seconds = config.leader_imbalance_check_interval_seconds
            self._repeat(seconds, context.cluster.members.prefer)
        self._tasks.append(context.loop.create_task(self._sample_loop_delay()))

    async def _maintain(self) -> None:
        await self.context.partitions.maintain(self.context.config.producer_id_expiration_ms)

    def _repeat(self, seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                awaited = work()
                if awaited is not None:
                    await awaited

        task = asyncio.get_running_loop().create_task(repeat())
        task.add_done_callback(self._background_ended)
        self._tasks.append(task)

    def _background_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    async def _sample_loop_delay(self) -> None:
        loop, histogram = self.context.loop, self.context.stats.loop_delay
        while True:
            due = loop.time() + LOOP_SAMPLE_SECONDS
            await asyncio.sleep(LOOP_SAMPLE_SECONDS)
            histogram.observe(max(0.0, loop.time() - due))

    def _fail(self, error: BaseException) -> None:
        """Marks the node as failed. The caller that runs the node awaits `failed` and stops it."""
        self._clean = False
        if not self.failed.done():
            logger.critical("the node is stopping: %s", error, exc_info=error)
            self.failed.set_result(error)

    # -- stop -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stops in order: hands over leaderships, stops accepting, finishes requests, syncs,
        unlocks."""
        cluster = self.context.cluster
        await self.services.stop()
        if not self.failed.done():
            await cluster.drain(HAND_OVER_SECONDS)
        for partition in self.context.partitions:
            partition.wake()
        await self._listener.close(DRAIN_SECONDS)
        if self._http is not None:
            await self._http.close()
        self._coordinators.close()
        self.context.pages.close()
        await cluster.stop()
        await self._cancel_tasks()
        await self._flusher.settled()
        self.context.partitions.stop()
        await self._flusher.close()
        closed_cleanly = await asyncio.to_thread(self._close_files)
        (Path(self.config.log_dirs) / ADDRESS_FILE).unlink(missing_ok=True)
        if self._clean and closed_cleanly:
            self._data.mark_clean()
        self._data.close()

    def cut_off(self) -> None:
        """For tests: drops all connections, as if the process were gone. Call `crash` next."""
        self._clean = False
        self._listener.abort()
        self.services.coordination.abort()
        self.context.cluster.links.abort()

    async def crash(self) -> None:
        """For tests: leaves the data as kill -9 would. Nothing is handed over, synced or marked
        clean."""
        self.cut_off()
        if self._http is not None:
            await self._http.close()
        await self.services.stop()
        self._coordinators.close()
        self.context.pages.close()
        await self.context.cluster.stop()
        await self._cancel_tasks()
        self.context.partitions.stop()
        await self._flusher.close()
        self._raft.raft_journal.close(clean=False)
        self._files.close()
        self._data.close()

    async def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _close_files(self) -> bool:
        """Returns True if everything was closed cleanly. Blocking."""
        is_clean = self.context.partitions.close_all()
        is_clean &= self.context.cluster.controller_log.close()
        is_clean &= self.services.coordination.close()
        self._raft.close_journals(clean=is_clean and self._clean)
        self._files.close()
        return is_clean


def new_cluster_id() -> str:
    """Returns 22 characters of base64. Like Kafka's own tools, avoids a leading dash, which a
    command line would take for an option."""
    while (text := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
