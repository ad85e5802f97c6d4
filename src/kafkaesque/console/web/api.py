"""The JSON API: the documents of all pages, message search, and an operator's actions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from kafkaesque.console.documents import cluster, groups, services, topics
from kafkaesque.console.documents.state import ConsoleState
from kafkaesque.console.messages.producer import REPLAY_RECORDS_MAX, NewRecord
from kafkaesque.console.messages.query import InvalidQuery, MessageQuery, read_query, read_time_ms
from kafkaesque.console.messages.ranges import histogram, offset_ranges
from kafkaesque.console.messages.record import EXPORT_FORMATS, encode_records, export_header
from kafkaesque.console.messages.scan import ScanBatch, ScanFailed, ScanPlan
from kafkaesque.console.rules.event_log import ClusterChange
from kafkaesque.console.web.live import sse_event
from kafkaesque.console.web.openapi import openapi_document
from kafkaesque.console.web.responses import json_response, read_body
from kafkaesque.console.web.security import OperatorAccess, require_operator, require_reader
from kafkaesque.events.tasks import dead_topic

EXPORT_RECORDS_MAX: Final = 10_000_000
HISTOGRAM_MS: Final = 3_600_000

Endpoint = Callable[[Request], Awaitable[Response]]


class NewTopicBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    partitions: int = -1
    """-1 means the broker's default."""
    replicas: int = -1
    settings: dict[str, str] = {}


class SettingBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    value: str | None = None


class ReplayBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The parameters of a search, and the topic to copy the records to."""

    to: str
    query: dict[str, str] = {}
    dry_run: bool = True


class RedriveBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    ids: list[str] = []
    """Empty means all."""
    drop: bool = False
    """Drop the dead letters instead of redriving them."""


class Api:
    """The endpoints of the API."""

    def __init__(self, state: ConsoleState, access: OperatorAccess, is_private: bool) -> None:
        self._state = state
        self._access = access
        self._is_private = is_private

    def routes(self) -> list[BaseRoute]:
        read, act = self._read, self._act
        return [
            Route("/api/openapi.json", read(lambda r: openapi_document())),
            Route("/api/overview", read(lambda r: cluster.overview(self._state))),
            Route("/api/brokers", read(lambda r: cluster.brokers(self._state))),
            Route("/api/raft", read(lambda r: cluster.raft(self._state, r.query_params))),
            Route("/api/events", read(lambda r: cluster.events(self._state, r.query_params))),
            Route("/api/history", read(lambda r: cluster.history(self._state, r.query_params))),
            Route("/api/topics", read(lambda r: topics.topics(self._state, r.query_params))),
            Route("/api/topics", act(self.create_topic), methods=["POST"]),
            Route("/api/topics/{name}", read(lambda r: topics.topic(self._state, _name(r)))),
            Route("/api/topics/{name}", act(self.delete_topic), methods=["DELETE"]),
            Route(
                "/api/topics/{name}/settings",
                read(lambda r: topics.topic_settings(self._state, _name(r))),
            ),
            Route("/api/topics/{name}/settings", act(self.set_setting), methods=["POST"]),
            Route("/api/topics/{name}/messages", read(self.messages)),
            Route("/api/topics/{name}/search", self._streaming(self.search)),
            Route("/api/topics/{name}/export", self._streaming(self.export)),
            Route("/api/topics/{name}/histogram", read(self.histogram)),
            Route("/api/topics/{name}/records", act(self.produce), methods=["POST"]),
            Route("/api/topics/{name}/replay", act(self.replay), methods=["POST"]),
            Route("/api/groups", read(lambda r: groups.groups(self._state, r.query_params))),
            Route("/api/groups/{name:path}/reset", act(self.reset), methods=["POST"]),
            Route("/api/groups/{name:path}", read(lambda r: groups.group(self._state, _name(r)))),
            Route("/api/groups/{name:path}", act(self.delete_group), methods=["DELETE"]),
            Route(
                "/api/coordination",
                read(lambda r: services.coordination(self._state, r.query_params)),
            ),
            Route("/api/gateways", read(lambda r: services.gateways(self._state))),
            Route("/api/pipeline", read(lambda r: services.pipeline(self._state))),
            Route("/api/chat", read(lambda r: services.chat(self._state))),
            Route("/api/tasks", read(lambda r: services.tasks(self._state))),
            Route(
                "/api/tasks/{name}/dead",
                read(lambda r: services.dead_letters(self._state, _name(r))),
            ),
            Route("/api/tasks/{name}/redrive", act(self.redrive), methods=["POST"]),
            Route("/api/trends", read(lambda r: services.trends(self._state))),
            Route("/api/processes", read(lambda r: services.processes(self._state))),
            Route("/api/processes/{name}/{action}", act(self.process), methods=["POST"]),
        ]

    # -- access -----------------------------------------------------------------------------------

    def _read(self, make: Callable[[Request], Any]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            require_reader(request, self._access, self._is_private)
            document = make(request)
            return json_response(await document if isinstance(document, Awaitable) else document)

        return endpoint

    def _act(self, make: Callable[[Request], Awaitable[Any]]) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            require_operator(request, self._access)
            return json_response(await make(request))

        return endpoint

    def _streaming(self, make: Endpoint) -> Endpoint:
        async def endpoint(request: Request) -> Response:
            require_reader(request, self._access, self._is_private)
            return await make(request)

        return endpoint

    # -- messages ---------------------------------------------------------------------------------

    async def _plan(self, topic_name: str, query: MessageQuery, follow: bool = False) -> ScanPlan:
        topic = topics.find_topic(self._state, topic_name)
        ranges = await offset_ranges(self._state.links, topic, query)
        return ScanPlan(topic_name, ranges, query, follow)

    async def messages(self, request: Request) -> Any:
        plan = await self._plan(_name(request), read_query(request.query_params))
        records: list[Any] = []
        progress: Any = {}
        async for found in self._state.scanner.scan(plan):
            records += [record.document() for record in found.records]
            progress = msgspec.to_builtins(_progress(found))
        return {"topic": plan.topic, "records": records, "progress": progress}

    async def search(self, request: Request) -> Response:
        follow = request.query_params.get("follow") == "1"
        plan = await self._plan(_name(request), read_query(request.query_params), follow)

        async def stream() -> AsyncIterator[bytes]:
            try:
                async for found in self._state.scanner.scan(plan):
                    if found.records:
                        yield sse_event("records", [record.document() for record in found.records])
                    yield sse_event(
                        "done" if found.progress.is_done else "progress", _progress(found)
                    )
            except ScanFailed as error:
                yield sse_event("failed", {"error": str(error)})

        return StreamingResponse(stream(), media_type="text/event-stream")

    async def export(self, request: Request) -> Response:
        form = request.query_params.get("format", "ndjson")
        if form not in EXPORT_FORMATS:
            raise InvalidQuery(f"format must be one of {', '.join(EXPORT_FORMATS)}")
        query = read_query(request.query_params, limit_max=EXPORT_RECORDS_MAX)
        plan = await self._plan(_name(request), query)

        async def stream() -> AsyncIterator[bytes]:
            yield export_header(form)
            async for found in self._state.scanner.scan(plan):
                if found.records:
                    yield encode_records(found.records, form)

        name = f"{plan.topic}.{form}"
        return StreamingResponse(
            stream(),
            media_type=EXPORT_FORMATS[form],
            headers={"Content-Disposition": f'attachment; filename="{name}"'},
        )

    async def histogram(self, request: Request) -> Any:
        query = request.query_params
        until_ms = read_time_ms(query["until"]) if query.get("until") else _now_ms()
        since_ms = read_time_ms(query["since"]) if query.get("since") else until_ms - HISTOGRAM_MS
        if since_ms >= until_ms:
            raise InvalidQuery("since must be before until")
        topic = topics.find_topic(self._state, _name(request))
        buckets = await histogram(self._state.links, topic, since_ms, until_ms)
        return {"topic": topic.name, "buckets": buckets}

    # -- operator actions -------------------------------------------------------------------------

    def _log_action(self, text: str, subject: str) -> None:
        """Add an operator's action to the event log and sample the cluster at once."""
        change = ClusterChange("operator", "info", text, subject)
        self._state.sampler.events.add(time.time(), [change])
        self._state.sampler.request_refresh()

    async def create_topic(self, request: Request) -> Any:
        body = await read_body(request, NewTopicBody)
        await self._state.admin.create_topic(
            body.name, body.partitions, body.replicas, body.settings
        )
        self._log_action(f"an operator created topic {body.name}", f"topic/{body.name}")
        return {"topic": body.name}

    async def delete_topic(self, request: Request) -> Any:
        name = topics.find_topic(self._state, _name(request)).name
        await self._state.admin.delete_topic(name)
        self._log_action(f"an operator deleted topic {name}", f"topic/{name}")
        return {"topic": name, "deleted": True}

    async def set_setting(self, request: Request) -> Any:
        name = topics.find_topic(self._state, _name(request)).name
        body = await read_body(request, SettingBody)
        await self._state.admin.set_topic_setting(name, body.name, body.value)
        value = "its default" if body.value is None else body.value
        self._log_action(f"an operator set {body.name} of {name} to {value}", f"topic/{name}")
        return {"topic": name, "name": body.name, "value": body.value}

    async def produce(self, request: Request) -> Any:
        topic = topics.find_topic(self._state, _name(request))
        return await self._state.producer.write(topic.name, await read_body(request, NewRecord))

    async def replay(self, request: Request) -> Any:
        body = await read_body(request, ReplayBody)
        query = read_query(
            {"from": "oldest", "limit": str(REPLAY_RECORDS_MAX), **body.query},
            limit_max=REPLAY_RECORDS_MAX,
        )
        plan = await self._plan(_name(request), query)
        topics.find_topic(self._state, body.to)
        if body.dry_run:
            matched = 0
            async for found in self._state.scanner.scan(plan):
                matched = found.progress.matched
            return {"from": plan.topic, "to": body.to, "would_copy": matched, "dry_run": True}
        done = await self._state.producer.replay(self._state.scanner, plan, body.to)
        self._log_action(
            f"an operator replayed {done['copied']} records of {plan.topic} to {body.to}",
            f"topic/{body.to}",
        )
        return done

    async def reset(self, request: Request) -> Any:
        wanted = await read_body(request, groups.OffsetResetRequest)
        done = await groups.reset(self._state, _name(request), wanted)
        if not wanted.dry_run:
            name = _name(request)
            self._log_action(
                f"an operator reset the offsets of group {name} to {wanted.to}", f"group/{name}"
            )
        return done

    async def delete_group(self, request: Request) -> Any:
        found = groups.find_group(self._state, _name(request))
        name = found.name
        await self._state.admin.delete_group(found.coordinator, name)
        self._log_action(f"an operator deleted group {name}", f"group/{name}")
        return {"group": name, "deleted": True}

    async def redrive(self, request: Request) -> Any:
        queue, body = _name(request), await read_body(request, RedriveBody)
        services.find_queue(self._state, queue)
        letters, ids = self._state.dead_letters, set(body.ids)
        if body.drop:
            verb, count, skipped = "dropped", await letters.drop(queue, ids), 0
        else:
            verb = "redrove"
            count, skipped = await letters.redrive(queue, ids)
        subject = "1 dead letter" if count == 1 else f"{count} dead letters"
        self._log_action(
            f"an operator {verb} {subject} of queue {queue}", f"topic/{dead_topic(queue)}"
        )
        done: dict[str, Any] = {"queue": queue, "dropped" if body.drop else "sent_back": count}
        return {**done, "skipped": skipped} if skipped else done

    async def process(self, request: Request) -> Any:
        name, action = _name(request), request.path_params["action"]
        await self._state.processes.act(name, action)
        self._state.sampler.events.add(
            time.time(), [ClusterChange("fault", "warn", f"{action} {name}", f"process/{name}")]
        )
        return {"process": name, "action": action}


def _name(request: Request) -> str:
    return str(request.path_params["name"])


def _progress(found: ScanBatch) -> Any:
    progress = found.progress
    return {
        "scanned": progress.scanned,
        "matched": progress.matched,
        "total": progress.total,
        "seconds": round(progress.seconds, 3),
        "note": progress.note,
        "is_done": progress.is_done,
    }


def _now_ms() -> int:
    return round(time.time() * 1000)
