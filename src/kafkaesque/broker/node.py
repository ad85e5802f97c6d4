"""The composition root: builds a broker, and starts and stops its parts in order.

`Node.start` builds the parts one after the other (`_Startup`) and returns a `Node` that serves. No
`Node` exists before, so each one is whole.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
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
    advertised_address,
    guarded_address,
    listen_address,
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
from kafkaesque.model.address import Address
from kafkaesque.model.clock import Clock
from kafkaesque.model.ids import CONTROLLER_GROUP, MemberId, NodeId, member_id
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


class BackgroundTasks:
    """The repeated work of a node. An error in it, or anywhere else that calls `fail`, ends the
    node.

    Exists before all other parts of the node, which call `fail` from their start on.
    """

    __slots__ = ("_loop", "_tasks", "failed")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._tasks: list[asyncio.Task[None]] = []
        self.failed: asyncio.Future[BaseException] = loop.create_future()

    def fail(self, error: BaseException) -> None:
        """Marks the node as failed. The caller that runs the node awaits `failed` and stops it."""
        if not self.failed.done():
            logger.critical("the node is stopping: %s", error, exc_info=error)
            self.failed.set_result(error)

    def repeat(self, seconds: float, work: Callable[[], Awaitable[None] | None]) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(seconds)
                awaited = work()
                if awaited is not None:
                    await awaited

        self.run(repeat())

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        task.add_done_callback(self.ended)
        self._tasks.append(task)

    def ended(self, task: asyncio.Task[None]) -> None:
        """Fails the node if the task ended with an error."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    async def cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class StatusPages:
    """The HTTP pages of a node."""

    context: Context
    services: SideServices
    listener: Listener
    flusher: Flusher
    replicas: ReplicaSet
    failed: asyncio.Future[BaseException]

    async def metrics(self) -> Page:
        # Imported on the first scrape: a broker without monitoring starts faster without it.
        from kafkaesque.broker.server.metrics import CONTENT_TYPE, metrics_text
        from kafkaesque.broker.side_metrics import SideCollector

        sources = self.context, self.listener, self.flusher, self.replicas
        return Page(200, CONTENT_TYPE, await metrics_text(*sources, SideCollector(self.services)))

    def health(self) -> Page:
        if self.failed.done():
            return text_page(503, f"failed: {self.failed.result()}")
        return text_page(200, "ok")

    def ready(self) -> Page:
        if self.failed.done():
            return text_page(503, f"failed: {self.failed.result()}")
        return readiness(self.context)


@dataclass(frozen=True, slots=True, eq=False, repr=False, kw_only=True)
class Node:
    """One broker that serves. Call `Node.start`, then `stop`."""

    config: BrokerConfig
    kafka_address: Address
    http_address: Address | None
    context: Context
    services: SideServices
    pages: StatusPages
    _data: DataDirectory
    _files: OpenFiles
    _flusher: Flusher
    _replicas: ReplicaSet
    _coordinators: Coordinators
    _listener: Listener
    _http: PageServer | None
    _background: BackgroundTasks

    @classmethod
    async def start(cls, config: BrokerConfig, clock: Clock | None = None) -> Node:
        """Starts in order: binds the port, locks the data, determines the identity, joins Raft,
        serves.

        If anything fails, raises and leaves nothing open.
        """
        async with AsyncExitStack() as undo:
            node = await _Startup(config, clock or SystemClock(), undo).run()
            undo.pop_all()
        node._start_background()
        return node

    @property
    def failed(self) -> asyncio.Future[BaseException]:
        """Resolves with the error if the node cannot continue."""
        return self._background.failed

    # -- work in the background -----------------------------------------------------------------

    def _start_background(self) -> None:
        config, context, repeat = self.config, self.context, self._background.repeat
        repeat(config.log_retention_check_interval_ms / 1000, self._maintain)
        repeat(config.offsets_retention_check_interval_ms / 1000, self._coordinators.expire)
        repeat(IDLE_CHECK_SECONDS, self._listener.close_idle)
        repeat(FLUSH_CHECK_SECONDS, context.partitions.flush_due)
        repeat(ADVANCE_SECONDS, context.cluster.advance)
        repeat(ADVANCE_SECONDS, self.services.coordination.advance)
        repeat(SCRUB_SECONDS, context.cluster.scrubber.step)
        if config.log_cleaner_enable:
            repeat(0, context.cleaner.turn)
        if config.auto_leader_rebalance_enable:
            seconds = config.leader_imbalance_check_interval_seconds
            repeat(seconds, context.cluster.members.prefer)
        self._background.run(self._sample_loop_delay())

    async def _maintain(self) -> None:
        await self.context.partitions.maintain(self.context.config.producer_id_expiration_ms)

    async def _sample_loop_delay(self) -> None:
        loop, histogram = self.context.loop, self.context.stats.loop_delay
        while True:
            due = loop.time() + LOOP_SAMPLE_SECONDS
            await asyncio.sleep(LOOP_SAMPLE_SECONDS)
            histogram.observe(max(0.0, loop.time() - due))

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
        await self._background.cancel()
        await self._flusher.settled()
        self.context.partitions.stop()
        await self._flusher.close()
        closed_cleanly = await asyncio.to_thread(self._close_files)
        (Path(self.config.log_dirs) / ADDRESS_FILE).unlink(missing_ok=True)
        if closed_cleanly and not self.failed.done():
            self._data.mark_clean()
        self._data.close()

    def _close_files(self) -> bool:
        """Returns True if everything was closed cleanly. Blocking."""
        is_clean = self.context.partitions.close_all()
        is_clean &= self.context.cluster.controller_log.close()
        is_clean &= self.services.coordination.close()
        self._replicas.close_journals(clean=is_clean and not self.failed.done())
        self._files.close()
        return is_clean

    def cut_off(self) -> None:
        """For tests: drops all connections, as if the process were gone. Call `crash` next."""
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
        await self._background.cancel()
        self.context.partitions.stop()
        await self._flusher.close()
        self._replicas.raft_journal.close(clean=False)
        self._files.close()
        self._data.close()


# -- start --------------------------------------------------------------------------------------


class _OwnedData(NamedTuple):
    """The locked data directory and the identity that this broker has on it."""

    directory: DataDirectory
    meta: Meta
    registration: BrokerRegistration


class _ClusterParts(NamedTuple):
    """The cluster, and what it is built on."""

    cluster: Cluster
    replicas: ReplicaSet
    flusher: Flusher
    files: OpenFiles


class _Startup:
    """One start of a node: the steps, each of which returns finished parts for the next ones.

    `undo` closes the parts again, the latest first, if a later step fails.
    """

    __slots__ = ("_background", "_clock", "_config", "_loop", "_undo")

    def __init__(self, config: BrokerConfig, clock: Clock, undo: AsyncExitStack) -> None:
        self._config = config
        self._clock = clock
        self._undo = undo
        self._loop = asyncio.get_running_loop()
        self._background = BackgroundTasks(self._loop)

    async def run(self) -> Node:
        # Some early parts need later ones, and get a function that returns them. These functions
        # are called only for connections, which begin with `listener.serve`.
        server, kafka_address = await self._bind(lambda: Connection(listener))
        seeds = Seeds(self._config.join)
        owned = await self._own_data(kafka_address, seeds)
        parts = await self._build_cluster(owned, lambda: peer_services)
        cluster = parts.cluster
        transactions = open_transactions(cluster, self._clock, self._loop, self._config)
        coordinators = Coordinators(cluster.groups, transactions.coordinator)
        handlers = load_handlers()
        identity = BrokerIdentity(
            owned.meta.cluster_id, cluster.node_id, kafka_address.host, kafka_address.port
        )
        context = self._new_context(
            identity, parts, transactions, handlers, lambda: listener.unsent_room_bytes()
        )
        dispatcher = Dispatcher(context, handlers)
        services = self._open_services(owned.directory, parts, dispatcher)
        peer_services: Mapping[range, PeerService] = {
            FORWARD_KINDS: ForwardedRequests(cluster.controller_log, dispatcher.serve_forwarded),
            REQUEST_KINDS: RequestsOfBrokers(dispatcher.serve_forwarded),
            **services.by_kind(),
        }
        listener = Listener(
            server,
            cluster.settings,
            context.stats,
            dispatcher,
            cluster.links.adopt,
            self._background.fail,
        )
        self._undo.push_async_callback(listener.close, 0)
        await listener.serve()
        self._take_part(parts, coordinators, services)
        await self._register(cluster, owned.registration, seeds)
        await services.serve(self._config)
        pages = StatusPages(
            context, services, listener, parts.flusher, parts.replicas, self._background.failed
        )
        http, http_address = await self._open_http(pages)
        self._write_address_file(kafka_address, http_address, services)
        return Node(
            config=self._config,
            kafka_address=kafka_address,
            http_address=http_address,
            context=context,
            services=services,
            pages=pages,
            _data=owned.directory,
            _files=parts.files,
            _flusher=parts.flusher,
            _replicas=parts.replicas,
            _coordinators=coordinators,
            _listener=listener,
            _http=http,
            _background=self._background,
        )

    async def _bind(
        self, new_connection: Callable[[], Connection]
    ) -> tuple[asyncio.Server, Address]:
        wanted = listen_address(self._config)
        server = await bind(new_connection, wanted.host, wanted.port)
        self._undo.callback(server.close)
        host, port, *_ = server.sockets[0].getsockname()
        return server, advertised_address(self._config, Address(host, port))

    async def _own_data(self, address: Address, seeds: Seeds) -> _OwnedData:
        """Locks the data directory and determines its identity. A new directory gets one: from the
        cluster that it joins, or that of a new cluster."""
        config = self._config
        data = DataDirectory(config.log_dirs)
        self._undo.callback(data.close)
        incarnation = data.count_start()
        node_id = NodeId(config.node_id)
        saved = data.meta
        directory_id = uuid4() if saved is None else saved.directory_id
        registration = BrokerRegistration(
            config.node_id,
            directory_id,
            address.host,
            address.port,
            config.broker_rack,
            incarnation,
        )
        if saved is not None:
            cluster_id, generation = saved.cluster_id, saved.generation
        elif seeds:
            me = PeerIdentity(node_id, 0, "", incarnation)
            cluster_id, generation = await introduce_broker(
                seeds, me, registration, self._loop, self._clock
            )
        else:
            cluster_id, generation = new_cluster_id(), 0
        meta = Meta(cluster_id, node_id, directory_id, generation)
        data.set_meta(meta)
        return _OwnedData(data, meta, registration)

    async def _build_cluster(
        self, owned: _OwnedData, peer_services: Callable[[], Mapping[range, PeerService]]
    ) -> _ClusterParts:
        """Builds everything that uses the data directory; nothing runs yet."""
        config, clock, loop, fail = self._config, self._clock, self._loop, self._background.fail
        data, meta, incarnation = owned.directory, owned.meta, owned.registration.incarnation
        was_clean = data.was_clean()
        if not was_clean and incarnation > 0:
            logger.info("the last stop was not clean: every log is checked from its sync point on")
        files = OpenFiles(config.open_files_max or None)
        self._undo.callback(files.close)
        raft_journal = RaftJournal.open(data.raft_path, files)
        sync_journal = await asyncio.to_thread(
            SyncJournal.open, data.raft_path, files, raft_journal.starts()
        )
        is_synced = config.flush == "always"
        flusher = Flusher(
            loop, sync_journal if is_synced else None, lambda lost: replicas.logs_lost(lost)
        )
        self._undo.push_async_callback(flusher.close)
        links = Links(
            PeerIdentity(meta.node_id, meta.generation, meta.cluster_id, incarnation),
            loop,
            PeerInbox(lambda: replicas, lambda: cluster, peer_services),
            clock,
            fail=fail,
            config=LINK_CONFIG,
            read_batch=batch_payload,
        )
        self._undo.push_async_callback(links.close, 0)
        replicas = ReplicaSet(
            member_id(meta.node_id, meta.generation),
            raft_journal,
            flusher,
            links,
            lambda replica, message: cluster.prefixes.fetch(replica, message),
            clock,
            loop.call_soon,
            fail,
        )
        leadership_changes: Changes[Partition] = Changes()
        env = Environment(loop, clock, replicas, leadership_changes, is_synced, config.validation)
        partitions = PartitionTable(data, files, env, clean=was_clean)
        groups = GroupCoordinator(partitions, lambda: new_registry(config), clock, loop)
        cluster = Cluster(
            self._open_controller_log(data, files, replicas),
            partitions,
            groups,
            replicas,
            leadership_changes,
            DynamicConfig(config),
            uuid4,
            loop.call_later,
            links,
        )
        return _ClusterParts(cluster, replicas, flusher, files)

    def _open_controller_log(
        self, data: DataDirectory, files: OpenFiles, replicas: ReplicaSet
    ) -> ControllerLog:
        """Opens the replica of the controller's log. Alone in a new cluster, this node creates the
        log."""
        path, is_clean = data.controller_log_path, data.was_clean()
        log = Log.open(path, CONTROLLER_LOG_CONFIG, files, clean=is_clean)
        replicas.attach(CONTROLLER_GROUP, log)

        def new_replica(machine: StateMachine) -> Replica:
            return open_replica(
                CONTROLLER_GROUP,
                log,
                self._first_members(replicas),
                replicas,
                machine,
                CONTROLLER_CONFIG,
                is_clean=is_clean,
            )

        return ControllerLog(
            StateFile(path), replicas.raft_journal, self._clock, self._background.fail, new_replica
        )

    def _open_services(
        self, data: DataDirectory, parts: _ClusterParts, dispatcher: Dispatcher
    ) -> SideServices:
        return SideServices.open(
            data.path,
            parts.files,
            parts.replicas,
            parts.cluster,
            dispatcher.serve_forwarded,
            self._clock,
            self._background.fail,
            first_members=self._first_members(parts.replicas),
            is_clean=data.was_clean(),
        )

    def _first_members(self, replicas: ReplicaSet) -> tuple[MemberId, ...]:
        """The members of a Raft group that this node creates. None if it joins a cluster."""
        return () if self._config.join else (replicas.member,)

    def _new_context(
        self,
        identity: BrokerIdentity,
        parts: _ClusterParts,
        transactions: TransactionCalls,
        handlers: Mapping[int, Handler[Any]],
        unsent_room_bytes: Callable[[], int],
    ) -> Context:
        cluster = parts.cluster
        return Context(
            identity=identity,
            settings=cluster.settings,
            cluster=cluster,
            partitions=cluster.partitions,
            groups=cluster.groups,
            transactions=transactions,
            fetch_sessions=FetchSessions(
                self._config.max_incremental_fetch_session_cache_slots,
                lambda: random.randint(1, 2**31 - 1),  # noqa: S311 - an id, not a secret
            ),
            pages=PageLoader(),
            cleaner=LogCleaner(
                cluster.partitions,
                parts.replicas.raft_journal,
                lambda: cluster.settings.current,
                self._clock,
            ),
            clock=self._clock,
            loop=self._loop,
            stats=BrokerStats(),
            api_ranges=lambda: api_ranges(handlers),
            unsent_room_bytes=unsent_room_bytes,
        )

    def _take_part(
        self, parts: _ClusterParts, coordinators: Coordinators, services: SideServices
    ) -> None:
        """Starts messages, ticks and elections."""
        cluster, replicas = parts.cluster, parts.replicas
        cluster.start(coordinators, self._background.ended)
        self._undo.push_async_callback(cluster.stop)
        cluster.connect_peers()
        replicas.add(cluster.controller_log.replica)
        if cluster.controller_log.replica.is_alone:
            cluster.controller_log.replica.campaign()
        services.coordination.take_part()
        self._undo.push_async_callback(services.stop)
        self._background.repeat(TICK_SECONDS, replicas.tick)
        self._undo.push_async_callback(self._background.cancel)

    async def _register(
        self, cluster: Cluster, registration: BrokerRegistration, seeds: Seeds
    ) -> None:
        """Registers our address with the controller. Waits for a majority of brokers."""
        failed = self._background.failed
        registering = asyncio.create_task(cluster.register(registration, seeds.addresses))
        failed.add_done_callback(lambda _: registering.cancel())
        try:
            await registering
        except asyncio.CancelledError:
            if failed.done():
                raise failed.result() from None
            raise
        await cluster.wait_settled()

    async def _open_http(self, pages: StatusPages) -> tuple[PageServer | None, Address | None]:
        if not self._config.http_listener:
            return None, None
        wanted = guarded_address(self._config, self._config.http_listener, "http.listener")
        server = PageServer(
            {"/metrics": pages.metrics, "/healthz": pages.health, "/readyz": pages.ready}
        )
        address = Address(*await server.open(wanted.host, wanted.port))
        self._undo.push_async_callback(server.close)
        return server, address

    def _write_address_file(
        self, kafka_address: Address, http_address: Address | None, services: SideServices
    ) -> None:
        content = {
            "pid": os.getpid(),
            "node_id": self._config.node_id,
            "kafka": str(kafka_address),
            "http": str(http_address) if http_address else None,
            **services.addresses(),
        }
        path = Path(self._config.log_dirs) / ADDRESS_FILE
        path.write_text(json.dumps(content) + "\n")


def new_cluster_id() -> str:
    """Returns 22 characters of base64. Like Kafka's own tools, avoids a leading dash, which a
    command line would take for an option."""
    while (text := urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text
