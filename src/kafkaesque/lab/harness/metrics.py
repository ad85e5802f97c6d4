"""Reads the /metrics of a broker or service."""

from __future__ import annotations

import re
import urllib.request
from typing import NamedTuple

SCRAPE_TIMEOUT_S = 30.0
_SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Sample(NamedTuple):
    name: str
    labels: str
    value: float


class Scrape:
    """All samples of one scrape."""

    def __init__(self, samples: list[Sample]) -> None:
        self.samples = samples

    def sum(self, name: str, labels: str = "", *, default: float = 0.0) -> float:
        """The sum of all samples of that name whose labels contain `labels`; `default` if none."""
        found = [s.value for s in self.samples if s.name == name and labels in s.labels]
        return sum(found) if found else default


def scrape(address: str) -> Scrape:
    url = f"http://{address}/metrics"
    with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as page:
        return parse(page.read().decode())


def parse(text: str) -> Scrape:
    found = _SAMPLE.findall(text)
    return Scrape([Sample(name, labels, float(value)) for name, labels, value in found])
