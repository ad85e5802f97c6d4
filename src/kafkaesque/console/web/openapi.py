"""The OpenAPI document of the JSON API, generated from a table of operations."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

PAGING: Final = ("q", "sort", "page", "size")
SEARCHING: Final = ("from", "until", "partition", "key", "filter", "decode", "limit", "scan")
MEANINGS: Final = {
    "q": "Text that the name contains.",
    "sort": "Column to sort by; a leading - sorts in descending order.",
    "page": "Page number, from 1.",
    "size": "Items per page, at most 500.",
    "show": "unhealthy, internal or all.",
    "status": "ok, idle, rewound, slow, stalled or stopped.",
    "kind": "Kind of event.",
    "series": "Comma-separated series: records_in, topic/NAME/rate, group/NAME/lag.",
    "window": "Seconds of history: up to 600 at one-second, up to 21600 at ten-second resolution.",
    "from": "newest, oldest, offset:N, last:N or time:ISO.",
    "until": "ISO time or milliseconds since the epoch.",
    "since": "ISO time or milliseconds since the epoch.",
    "partition": "Comma-separated partition numbers; default: all.",
    "key": "The exact key.",
    "filter": 'Filter expression, for example value.user.id == 42 and key startswith "a".',
    "decode": "auto, json, avro, protobuf, msgpack, text or hex.",
    "limit": "Maximum number of records to return.",
    "scan": "Maximum number of records to scan.",
    "follow": "1 to follow the end of the topic.",
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
    ApiOperation("get", "/api/overview", "Health, totals, busiest topics"),
    ApiOperation("get", "/api/brokers", "Brokers, their disks and metrics"),
    ApiOperation("get", "/api/raft", "The controller quorum and the partitions' Raft groups", PAGING),
    ApiOperation("get", "/api/events", "Elections, brokers up and down, other changes", ("kind",)),
    ApiOperation("get", "/api/history", "Time series, and events to mark on them", ("series", "window")),
    ApiOperation("get", "/api/topics", "Topics, paginated", (*PAGING, "show")),
    ApiOperation("post", "/api/topics", "Create a topic", (),
              {"name": "string", "partitions": "integer", "replicas": "integer",
               "settings": "object"}),
    ApiOperation("get", "/api/topics/{name}", "One topic"),
    ApiOperation("delete", "/api/topics/{name}", "Delete a topic"),
    ApiOperation("get", "/api/topics/{name}/settings", "Settings of a topic"),
    ApiOperation("post", "/api/topics/{name}/settings", "Change a setting; null resets it to its default", (),
              {"name": "string", "value": "string"}),
    ApiOperation("get", "/api/topics/{name}/messages", "Search records, one response", SEARCHING),
    ApiOperation("get", "/api/topics/{name}/search", "Search records, streamed with progress",
              (*SEARCHING, "follow"), media="text/event-stream"),
    ApiOperation("get", "/api/topics/{name}/export", "Export records as a file", (*SEARCHING, "format"),
              media="application/x-ndjson"),
    ApiOperation("get", "/api/topics/{name}/histogram", "Record counts over time", ("since", "until")),
    ApiOperation("post", "/api/topics/{name}/records", "Produce a record", (),
              {"value": "string", "key": "string", "partition": "integer", "headers": "object",
               "encoding": "string"}),
    ApiOperation("post", "/api/topics/{name}/replay", "Replay records to another topic", (),
              {"to": "string", "query": "object", "dry_run": "boolean"}),
    ApiOperation("get", "/api/groups", "Consumer groups, paginated", (*PAGING, "status")),
    ApiOperation("get", "/api/groups/{name}", "One group, its members and offsets"),
    ApiOperation("delete", "/api/groups/{name}", "Delete a group"),
    ApiOperation("post", "/api/groups/{name}/reset", "Reset a group's offsets, or show the plan", (),
              {"to": "string", "topic": "string", "partitions": "array", "dry_run": "boolean"}),
    ApiOperation("get", "/api/coordination", "A node of the coordination tree, and sessions", ("path",)),
    ApiOperation("get", "/api/gateways", "Gateways"),
    ApiOperation("get", "/api/chat", "Chat"),
    ApiOperation("get", "/api/tasks", "Task workers and queues"),
    ApiOperation("get", "/api/tasks/{name}/dead", "Dead letters of a queue"),
    ApiOperation("post", "/api/tasks/{name}/redrive", "Redrive or drop dead letters; without ids, all of them", (),
              {"ids": "array", "drop": "boolean"}),
    ApiOperation("get", "/api/pipeline", "Spark queries"),
    ApiOperation("get", "/api/trends", "Trending hashtags"),
    ApiOperation("get", "/api/processes", "Processes of `kafkaesque up`"),
    ApiOperation("post", "/api/processes/{name}/{action}", "Kill, pause, resume or restart a process"),
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
            "description": "Reading is open unless the console is private. Changes require "
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
            "default": {"description": "Error", **failure},
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
