"""The OpenAPI document of the JSON API, from one table."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PAGING: Final = ("q", "sort", "page", "size")
SEARCHING: Final = ("from", "until", "partition", "key", "filter", "decode", "limit", "scan")
MEANINGS: Final = {
    "q": "Text that the name has in it.",
    "sort": "Column; with - before it, descending.",
    "page": "Number of the page, from 1.",
    "size": "Items on a page, at most 500.",
    "show": "unhealthy, internal or all.",
    "status": "ok, idle, rewound, slow, stalled or stopped.",
    "kind": "Kind of event.",
    "series": "Names of series, by comma: records_in, topic/NAME/rate, group/NAME/lag.",
    "window": "Seconds to look back; up to 600 by the second, up to 21600 by ten seconds.",
    "from": "newest, oldest, offset:N, last:N or time:ISO.",
    "until": "ISO time or milliseconds since the epoch.",
    "since": "ISO time or milliseconds since the epoch.",
    "partition": "Numbers, by comma; all without.",
    "key": "The key, exactly.",
    "filter": 'Expression, as value.user.id == 42 and key startswith "a".',
    "decode": "auto, json, avro, protobuf, msgpack, text or hex.",
    "limit": "Records wanted.",
    "scan": "Records looked at, at most.",
    "follow": "1 for a live tail.",
    "format": "ndjson or csv.",
    "path": "Path of a node.",
}


class ApiOperation(NamedTuple):
    method: str
    path: str
    summary: str
    query: tuple[str, ...] = ()
    body: dict[str, str] | None = None
    """Fields of the JSON body and their types."""
    media: str = "application/json"


OPERATIONS: Final = (
    ApiOperation("get", "/api/overview", "Health, totals, what is busiest"),
    ApiOperation("get", "/api/brokers", "Brokers, their disks and metrics"),
    ApiOperation("get", "/api/raft", "The controller's Raft group and those of partitions", PAGING),
    ApiOperation("get", "/api/events", "Elections, joins, changes", ("kind",)),
    ApiOperation("get", "/api/history", "Series over time, and marks", ("series", "window")),
    ApiOperation("get", "/api/topics", "Topics, one page", (*PAGING, "show")),
    ApiOperation("post", "/api/topics", "Create a topic", (),
              {"name": "string", "partitions": "integer", "replicas": "integer",
               "settings": "object"}),
    ApiOperation("get", "/api/topics/{name}", "One topic"),
    ApiOperation("delete", "/api/topics/{name}", "Delete a topic"),
    ApiOperation("get", "/api/topics/{name}/settings", "Settings of a topic"),
    ApiOperation("post", "/api/topics/{name}/settings", "Change a setting; null gives it back", (),
              {"name": "string", "value": "string"}),
    ApiOperation("get", "/api/topics/{name}/messages", "Records, at once", SEARCHING),
    ApiOperation("get", "/api/topics/{name}/search", "Records as they are found, and progress",
              (*SEARCHING, "follow"), media="text/event-stream"),
    ApiOperation("get", "/api/topics/{name}/export", "Records as a file", (*SEARCHING, "format"),
              media="application/x-ndjson"),
    ApiOperation("get", "/api/topics/{name}/histogram", "Records by time", ("since", "until")),
    ApiOperation("post", "/api/topics/{name}/records", "Write a record", (),
              {"value": "string", "key": "string", "partition": "integer", "headers": "object",
               "encoding": "string"}),
    ApiOperation("post", "/api/topics/{name}/replay", "Copy records to a topic", (),
              {"to": "string", "query": "object", "dry_run": "boolean"}),
    ApiOperation("get", "/api/groups", "Consumer groups, one page", (*PAGING, "status")),
    ApiOperation("get", "/api/groups/{name}", "One group, its members and offsets"),
    ApiOperation("delete", "/api/groups/{name}", "Delete a group"),
    ApiOperation("post", "/api/groups/{name}/reset", "Move a group's offsets, or plan it", (),
              {"to": "string", "topic": "string", "partitions": "array", "dry_run": "boolean"}),
    ApiOperation("get", "/api/coordination", "A node of the tree, and sessions", ("path",)),
    ApiOperation("get", "/api/gateways", "Gateways"),
    ApiOperation("get", "/api/chat", "Chat"),
    ApiOperation("get", "/api/tasks", "Task workers, dead letters"),
    ApiOperation("get", "/api/tasks/{name}/dead", "Dead letters of a queue"),
    ApiOperation("post", "/api/tasks/{name}/redrive", "Send dead letters back; no ids: all of them", (),
              {"ids": "array", "drop": "boolean"}),
    ApiOperation("get", "/api/pipeline", "Spark queries"),
    ApiOperation("get", "/api/trends", "Trending hashtags"),
    ApiOperation("get", "/api/processes", "Processes that `kafkaesque up` runs"),
    ApiOperation("post", "/api/processes/{name}/{action}", "kill, pause, resume or restart one"),
    ApiOperation("get", "/api/session", "Whether you are signed in, and the CSRF token"),
    ApiOperation("post", "/api/session", "Sign in", (), {"password": "string"}),
    ApiOperation("delete", "/api/session", "Sign out"),
)  # fmt: skip


def openapi_document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Kafkaesque console",
            "version": "1",
            "description": "Reading is open unless the console is private. Changing needs "
            "`Authorization: Bearer PASSWORD`, or a session and its X-CSRF-Token.",
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "kafkaesque-console"},
            },
            "schemas": {
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}},
            },
        },
        "paths": paths,
    }


def _operation(operation: ApiOperation) -> dict[str, Any]:
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "description": MEANINGS[name], "schema": {"type": "string"}}
        for name in operation.query
    ]
    failure = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}}
    document: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": _operation_id(operation),
        "parameters": parameters,
        "responses": {
            "200": {
                "description": operation.summary,
                "content": {operation.media: {"schema": {}}},
            },
            "default": {"description": "What went wrong", **failure},
        },
    }
    if operation.body is not None:
        fields = {name: {"type": kind} for name, kind in operation.body.items()}
        schema = {"type": "object", "properties": fields}
        document["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    if operation.method != "get" and operation.path != "/api/session":
        document["security"] = [{"bearer": []}, {"session": []}]
    return document


def _operation_id(operation: ApiOperation) -> str:
    words = [part.strip("{}") for part in operation.path.split("/")[2:]]
    return "-".join([operation.method, *words])
