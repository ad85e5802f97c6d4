"""A parser for Prometheus' text exposition format, and quantiles of its histograms."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

SAMPLES_MAX: Final = 200_000
"""Lines read from one page; the rest is ignored."""

_LINE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?[ \t]+(\S+)(?:[ \t]+-?\d+)?\Z")
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)",?')
_ESCAPES: Final = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class MetricSample:
    """One value of a metric with its labels."""

    labels: Labels
    value: float


class Exposition:
    """The samples of one /metrics page by metric name."""

    def __init__(self, samples: Mapping[str, list[MetricSample]]) -> None:
        self._samples = samples

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def names(self) -> list[str]:
        return sorted(self._samples)

    def all(self, name: str) -> list[MetricSample]:
        return self._samples.get(name, [])

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the first sample with these labels."""
        for sample in self.all(name):
            if all(sample.labels.get(key) == wanted for key, wanted in labels.items()):
                return sample.value
        return None

    def total(self, name: str, **labels: str) -> float:
        """The sum over all samples with these labels."""
        return sum(
            sample.value
            for sample in self.all(name)
            if all(sample.labels.get(key) == wanted for key, wanted in labels.items())
        )

    def buckets(self, name: str, **labels: str) -> dict[float, float]:
        """Cumulative counts of a histogram by upper bound, summed over all samples with these labels."""
        found: dict[float, float] = defaultdict(float)
        for sample in self.all(f"{name}_bucket"):
            if all(sample.labels.get(key) == wanted for key, wanted in labels.items()):
                found[_number(sample.labels.get("le", "+Inf")) or 0.0] += sample.value
        return dict(found)


def read_exposition(text: str) -> Exposition:
    """Parse a page. Malformed lines are skipped: one of them must not hide the whole page."""
    samples: dict[str, list[MetricSample]] = defaultdict(list)
    for number, line in enumerate(text.splitlines()):
        if number > SAMPLES_MAX:
            break
        if not line or line[0] == "#":
            continue
        found = _LINE.match(line)
        value = _number(found[3]) if found else None
        if found and value is not None:
            samples[found[1]].append(MetricSample(_labels(found[2] or ""), value))
    return Exposition(dict(samples))


def _labels(text: str) -> dict[str, str]:
    return {
        name: re.sub(r'\\[\\"n]', lambda found: _ESCAPES[found[0]], value)
        for name, value in _LABEL.findall(text)
    }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def quantile(before: Mapping[float, float], after: Mapping[float, float], share: float) -> float:
    """The quantile of the observations between two scrapes of a histogram; NaN if there are none."""
    grown = sorted((bound, count - before.get(bound, 0.0)) for bound, count in after.items())
    total = grown[-1][1] if grown else 0.0
    if total <= 0:
        return float("nan")
    rank, low, seen = share * total, 0.0, 0.0
    for bound, count in grown:
        if count >= rank:
            if bound == float("inf"):
                return low
            inside = count - seen
            return low + (bound - low) * ((rank - seen) / inside if inside else 1.0)
        low, seen = bound, count
    return low


def sum_buckets(pages: Iterable[Mapping[float, float]]) -> dict[float, float]:
    total: dict[float, float] = defaultdict(float)
    for page in pages:
        for bound, count in page.items():
            total[bound] += count
    return dict(total)
