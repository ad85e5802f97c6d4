"""Everything a document is made of: one object, put together by `web.serving` and by tests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kafkaesque.console.cluster.links import KafkaLinks
from kafkaesque.console.cluster.operating import Operating
from kafkaesque.console.cluster.sampler import Sampler
from kafkaesque.console.messages.scanning import Scanner
from kafkaesque.console.messages.writing import Writer
from kafkaesque.console.services.control import Processes
from kafkaesque.console.services.coordination import Coordination
from kafkaesque.console.services.dead_letters import DeadLetters
from kafkaesque.console.services.scraper import Scraper
from kafkaesque.console.services.trends import Trends


@dataclass(frozen=True, slots=True)
class State:
    links: KafkaLinks
    sampler: Sampler
    scraper: Scraper
    scanner: Scanner
    operating: Operating
    writer: Writer
    coordination: Coordination
    processes: Processes
    trends: Trends
    dead_letters: DeadLetters
    pipeline_data: Path | None = None
    chat_url: str | None = None


class NotThere(Exception):
    """There is no topic, group or page of this name."""
