"""Documents about consumer groups: the list, one group, and offset resets."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from kafkaesque.admin.requests import EARLIEST, LATEST, list_offsets
from kafkaesque.admin.rules.offset_reset import Bounds, OffsetSpec, Shift, plan_reset
from kafkaesque.client.wire.errors import ApiUnsupported, ConnectionLost
from kafkaesque.console.cluster.queries import describe_members
from kafkaesque.console.documents.cluster import page_document
from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.messages.query import InvalidQuery, read_time_ms
from kafkaesque.console.rules.lag import SENTENCES, TimeLag
from kafkaesque.console.rules.paging import paginate, read_page_request
from kafkaesque.console.rules.view import Document, GroupView, PartitionKey

SPARK_WINDOW_S: Final = 300
SORTS: Final[Mapping[str, Callable[[GroupView], Any]]] = {
    "name": lambda group: group.name,
    "state": lambda group: group.state,
    "members": lambda group: group.members,
    "lag": lambda group: group.lag,
    "lag_s": lambda group: group.time_lag.seconds,
    "status": lambda group: int(group.status),
}


def groups(state: ConsoleState, query: Mapping[str, str]) -> Document:
    view = state.sampler.view
    status = query.get("status", "")
    found = [item for item in view.groups.values() if not status or item.status.label == status]
    request = read_page_request(query)
    page = paginate(found, request, lambda group: group.name, SORTS)
    counts: dict[str, int] = {}
    for group in view.groups.values():
        counts[group.status.label] = counts.get(group.status.label, 0) + 1
    return {
        **page_document(page, [group_row(state, group) for group in page.items]),
        "all": len(view.groups),
        "statuses": counts,
        "status": status, "q": request.search, "sort": request.sort,
    }  # fmt: skip


def _time_lag(lag: TimeLag | None) -> Document:
    if lag is None:
        return {"lag_s": None, "lag_s_is_exact": True}
    return {"lag_s": round(lag.seconds, 3), "lag_s_is_exact": lag.is_exact}


def group_row(state: ConsoleState, group: GroupView) -> Document:
    history = state.sampler.history
    points = history.points(f"group/{group.name}/lag", SPARK_WINDOW_S, time.time())
    return {
        "name": group.name,
        "state": group.state,
        "kind": group.kind,
        "protocol_type": group.protocol_type,
        "coordinator": group.coordinator,
        "members": group.members,
        "topics": group.topics,
        "lag": group.lag,
        **_time_lag(group.time_lag),
        "trend": group.trend.word,
        "trend_per_second": group.trend.per_second,
        "arrow": group.trend.arrow,
        "catch_up_s": group.catch_up_s,
        "status": group.status.label,
        "level": group.status.level,
        "sentence": SENTENCES[group.status],
        "spark": [round(point.value) for point in points][-60:],
    }


def find_group(state: ConsoleState, name: str) -> GroupView:
    group = state.sampler.view.groups.get(name)
    if group is None:
        raise ResourceNotFound(f"consumer group '{name}' does not exist")
    return group


async def group(state: ConsoleState, name: str) -> Document:
    found = find_group(state, name)
    try:
        described = await describe_members(state.links, found.coordinator, name, found.kind)
    except (ConnectionLost, ApiUnsupported) as error:
        described = {"members": [], "assignor": None, "error": f"members are unknown: {error}"}
    owners = {
        (topic, partition): member["client_id"]
        for member in described["members"]
        for topic, partition in member["partitions"]
    }
    return {
        **group_row(state, found),
        "assignor": described.get("assignor"),
        "member_rows": described["members"],
        "members_error": described.get("error"),
        "offsets": [
            {
                "topic": item.topic,
                "partition": item.partition,
                "committed": item.committed,
                "end": item.end,
                "lag": item.lag,
                **_time_lag(item.time_lag),
                "status": item.status.label,
                "level": item.status.level,
                "client_id": owners.get((item.topic, item.partition)),
            }
            for item in found.offsets
        ],
    }


class OffsetResetRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The topic to reset (default: all with committed offsets), its partitions (default: all),
    and the new position."""

    to: str
    topic: str | None = None
    partitions: list[int] = []
    dry_run: bool = True


async def reset(state: ConsoleState, name: str, wanted: OffsetResetRequest) -> Document:
    """Plan an offset reset, and carry it out unless it is a dry run."""
    found = find_group(state, name)
    committed = {(item.topic, item.partition): item.committed for item in found.offsets}
    text = wanted.to
    if text.startswith("time:"):
        text = f"time:{read_time_ms(text.removeprefix('time:'))}"
    target = read_target(text)
    time_ms = None
    if isinstance(target, OffsetSpec) and target.kind == "time":
        time_ms = target.number
    bounds = await _bounds(state, _places(state, found, wanted), time_ms)
    changes = plan_reset(committed, bounds, target)
    if not wanted.dry_run:
        await state.admin.reset_offsets(found.coordinator, name, changes)
        state.sampler.request_refresh()
    return {
        "group": name,
        "to": wanted.to,
        "dry_run": wanted.dry_run,
        "members": found.members,
        "moves": [change.document() for change in changes],
    }


def read_target(text: str) -> OffsetSpec | Shift:
    """`oldest`, `newest`, `offset:42`, `shift:-10`, `time:MILLISECONDS`. Raises InvalidQuery."""
    kind, _, rest = text.strip().partition(":")
    digits = rest.removeprefix("-") if kind == "shift" else rest
    has_number = digits.isdecimal() and len(digits) <= 18
    match kind:
        case "oldest" if not rest:
            return OffsetSpec("beginning")
        case "newest" if not rest:
            return OffsetSpec("end")
        case "offset" if has_number:
            return OffsetSpec("offset", int(rest))
        case "time" if has_number:
            return OffsetSpec("time", int(rest))
        case "shift" if has_number:
            return Shift(int(rest))
    raise InvalidQuery("to is oldest, newest, offset:N, shift:N or time:ISO")


def _places(
    state: ConsoleState, group: GroupView, wanted: OffsetResetRequest
) -> dict[PartitionKey, int]:
    topics = state.sampler.view.topics
    names = [wanted.topic] if wanted.topic is not None else group.topics
    places: dict[PartitionKey, int] = {}
    for name in names:
        topic = topics.get(name)
        if topic is None:
            if wanted.topic is not None:
                raise ResourceNotFound(f"topic '{name}' does not exist")
            continue
        for partition in topic.partitions:
            if not wanted.partitions or partition.index in wanted.partitions:
                places[name, partition.index] = partition.leader
    return places


async def _bounds(
    state: ConsoleState, places: Mapping[PartitionKey, int], time_ms: int | None
) -> dict[PartitionKey, Bounds]:
    starts, ends = await asyncio.gather(
        list_offsets(state.links, places, EARLIEST), list_offsets(state.links, places, LATEST)
    )
    at = {} if time_ms is None else await list_offsets(state.links, places, time_ms)
    return {
        place: Bounds(starts[place], end, at.get(place))
        for place, end in ends.items()
        if place in starts
    }
