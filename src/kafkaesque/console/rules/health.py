"""The health of a cluster in one sentence, and the findings that it summarizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafkaesque.console.rules.lag import SENTENCES, GroupStatus
from kafkaesque.console.rules.view import ConsoleBrokerView, ConsoleClusterView

DISK_FREE_SHARE_MIN = 0.1
NAMES_SHOWN = 3
_LEVELS = ("good", "warn", "bad")


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """A problem to show an operator. `level` is warn or bad; `link` is a page of the console."""

    level: str
    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Health:
    level: str
    """good, warn, bad, or unknown before the first sample."""
    sentence: str
    findings: tuple[HealthFinding, ...] = ()


def health_of(view: ConsoleClusterView) -> Health:
    if not view.sampled_s:
        return Health("unknown", view.error or "Connecting to the cluster ...")
    if view.error:
        return Health("bad", f"The cluster does not answer: {view.error}")
    findings = tuple(_findings(view))
    level = max((finding.level for finding in findings), key=_LEVELS.index, default="good")
    if not findings:
        return Health("good", _all_good(view))
    worst = [finding.text for finding in findings if finding.level == level]
    rest = len(findings) - len(worst)
    more = f" ({_count(rest, 'minor finding')})" if rest else ""
    return Health(level, f"{_join(worst)}{more}.", findings)


def _all_good(view: ConsoleClusterView) -> str:
    up = sum(1 for broker in view.brokers.values() if broker.is_up)
    readers = sum(1 for group in view.groups.values() if group.status is GroupStatus.OK)
    brokers = "The one broker is up" if len(view.brokers) == 1 else f"All {up} brokers are up"
    replicas = "has a leader" if up == 1 else "has a leader and all replicas in sync"
    groups = (
        f"; {_count(readers, 'consumer group')} keep{'s' * (readers == 1)} up" if readers else ""
    )
    return f"{brokers}; each of {_count(view.partition_count, 'partition')} {replicas}{groups}."


def _findings(view: ConsoleClusterView) -> Iterator[HealthFinding]:
    down = [broker.id for broker in view.brokers.values() if not broker.is_up]
    if down:
        verb = "is" if len(down) == 1 else "are"
        yield HealthFinding(
            "bad" if len(down) * 2 >= len(view.brokers) else "warn",
            f"{_names('broker', down)} {verb} down",
            "/brokers",
        )
    leaderless = {topic.name: topic.leaderless for topic in view.topics.values()}
    if count := sum(leaderless.values()):
        where = _where(leaderless)
        yield HealthFinding(
            "bad",
            f"{_count(count, 'partition')} without a leader {where}",
            "/topics?show=unhealthy",
        )
    under_replicated = {
        topic.name: sum(1 for p in topic.partitions if p.is_under_replicated and p.leader >= 0)
        for topic in view.topics.values()
    }
    if count := sum(under_replicated.values()):
        text = f"{_count(count, 'partition')} under-replicated {_where(under_replicated)}"
        yield HealthFinding("warn", text, "/topics?show=unhealthy")
    if view.quorum is not None and view.quorum.leader < 0:
        yield HealthFinding("bad", "the controller quorum has no leader", "/raft")
    yield from _disks(view.brokers.values())
    yield from _groups(view)


def _disks(brokers: Iterable[ConsoleBrokerView]) -> Iterator[HealthFinding]:
    for broker in brokers:
        total, free = broker.disk_total_bytes, broker.disk_free_bytes
        if total and free is not None and free < DISK_FREE_SHARE_MIN * total:
            text = f"the disk of broker {broker.id} has only {free / total:.0%} free space"
            yield HealthFinding("warn", text, "/brokers")


def _groups(view: ConsoleClusterView) -> Iterator[HealthFinding]:
    by_status: dict[GroupStatus, list[str]] = {}
    for group in view.groups.values():
        if group.status.level != "good":
            by_status.setdefault(group.status, []).append(group.name)
    for status in sorted(by_status, reverse=True):
        names = sorted(by_status[status])
        if len(names) == 1:
            yield HealthFinding(
                "warn", f"group {names[0]} {SENTENCES[status]}", f"/groups/{names[0]}"
            )
        else:
            text = f"{len(names)} groups are {status.label} ({_listed(names)})"
            yield HealthFinding("warn", text, f"/groups?status={status.label}")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _names(noun: str, ids: list[int]) -> str:
    listed = _listed([str(number) for number in sorted(ids)])
    return f"{noun} {listed}" if len(ids) == 1 else f"{noun}s {listed}"


def _listed(names: list[str]) -> str:
    shown = names[:NAMES_SHOWN]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


def _where(counts: dict[str, int]) -> str:
    names = sorted(name for name, count in counts.items() if count)
    return f"in {_listed(names)}"


def _join(texts: list[str]) -> str:
    joined = "; ".join(texts)
    return joined[:1].upper() + joined[1:]
