"""All sources of data that documents are built from, created by `web.app.build_state`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafkaesque.client.wire.pool import ConnectionPool
from kafkaesque.console.cluster.admin import ConsoleAdmin
from kafkaesque.console.cluster.sampler import Sampler
from kafkaesque.console.messages.producer import RecordProducer
from kafkaesque.console.messages.scan import Scanner
from kafkaesque.console.services.coordination import CoordinationReader
from kafkaesque.console.services.dead_letters import DeadLetters
from kafkaesque.console.services.pipeline import TrendFollower
from kafkaesque.console.services.process_control import ProcessControl
from kafkaesque.console.services.scraper import Scraper


@dataclass(frozen=True, slots=True)
class ConsoleState:
    links: ConnectionPool
    sampler: Sampler
    scraper: Scraper
    scanner: Scanner
    admin: ConsoleAdmin
    producer: RecordProducer
    coordination: CoordinationReader
    processes: ProcessControl
    trends: TrendFollower
    dead_letters: DeadLetters
    pipeline_data: Path | None = None
    chat_url: str | None = None


class ResourceNotFound(Exception):
    """The topic, group, queue or page does not exist."""
