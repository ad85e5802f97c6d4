"""The converter from Kafka's schemas to our tables, and that our tables match its output."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kafkaesque.wire.api import REQUESTS
from kafkaesque.wire.table import StructMeta

TOOL = Path(__file__).parents[2] / "tools" / "schema_tables.py"
KAFKA_JAR = (
    Path.home() / ".m2/repository/org/apache/kafka/kafka-clients/4.3.0/kafka-clients-4.3.0.jar"
)

REQUEST = {
    "apiKey": 900,
    "type": "request",
    "name": "PingRequest",
    "validVersions": "1-5",
    "latestVersionUnstable": True,
    "flexibleVersions": "3+",
    "fields": [
        {"name": "Peers", "type": "[]Node", "versions": "0+", "fields": [
            {"name": "Id", "type": "int8", "versions": "0+"},
        ]},
        {"name": "TopicIds", "type": "[]uuid", "versions": "0+"},
        {"name": "WaitMs", "type": "int32", "versions": "2+", "default": "0x10"},
        {"name": "Rack", "type": "string", "versions": "3+", "nullableVersions": "3+",
         "default": "null", "taggedVersions": "3+", "tag": 0},
        {"name": "Future", "type": "bool", "versions": "5+"},
    ],
}  # fmt: skip
RESPONSE = {
    "apiKey": 900,
    "type": "response",
    "name": "PingResponse",
    "validVersions": "1-5",
    "flexibleVersions": "3+",
    "fields": [
        {"name": "ThrottleTimeMs", "type": "int32", "versions": "0+"},
        {"name": "Nodes", "type": "[]Node", "versions": "2+", "fields": [
            {"name": "NodeId", "type": "int32", "versions": "2+"},
            {"name": "Leader", "type": "Leader", "versions": "3+", "taggedVersions": "3+",
             "tag": 1, "fields": [{"name": "Up", "type": "bool", "versions": "3+"}]},
        ]},
    ],
}  # fmt: skip

PRINTED = '''"""Ping, API key 900 (tables only)."""

from __future__ import annotations

from kafkaesque.wire.table import Bool, Int32, Int8, Request, Response, String, Struct, Uuid, f


class Node(Struct):
    id: Int8 = f("0+")


class PingRequest(Request, key=900, versions="1-4", flexible="3+"):
    peers: list[Node] = f("0+")
    topic_ids: list[Uuid] = f("0+")
    wait_ms: Int32 = f("2+", default=16)
    rack: String | None = f("3+", nullable="3+", tag=0, tagged="3+", default=None)


class Leader(Struct):
    up: Bool = f("3+")


class ResponseNode(Struct):
    node_id: Int32 = f("2+")
    leader: Leader | None = f("3+", tag=1, tagged="3+", default=None)


class PingResponse(Response, key=900, versions="1-4", flexible="3+"):
    throttle_time_ms: Int32 = f("0+", default=0)
    nodes: list[ResponseNode] = f("2+", default=[])
'''


def convert(*arguments: str | Path) -> str:
    command = [sys.executable, str(TOOL), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def test_module_is_printed_from_the_facts_of_the_schema(tmp_path: Path) -> None:
    jar = tmp_path / "clients.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        for schema in (REQUEST, RESPONSE):
            text = "// a licence\n" + json.dumps(schema)
            archive.writestr(f"common/message/{schema['name']}.json", text)

    assert convert(jar, "Ping") == PRINTED


def tables(module: ModuleType) -> dict[str, Any]:
    """Every class of a module with all that its table says, nested structs by name."""
    return {
        name: [
            (*field[:2], field.struct and field.struct.__name__, *field[3:]) for field in cls.fields
        ]
        + [getattr(cls, fact, None) for fact in ("API_KEY", "VERSIONS", "FLEXIBLE_SINCE")]
        for name, cls in vars(module).items()
        if isinstance(cls, StructMeta) and cls.__module__ == module.__name__
    }


@pytest.mark.skipif(
    not KAFKA_JAR.exists(), reason=f"needs {KAFKA_JAR}: run `tools/setup-clients` (Java and Maven)"
)
def test_tables_are_those_of_kafkas_own_schemas(tmp_path: Path) -> None:
    convert(
        KAFKA_JAR,
        "--into",
        tmp_path,
        *(c.__name__.removesuffix("Request") for c in REQUESTS.values()),
    )
    for cls in REQUESTS.values():
        ours = sys.modules[cls.__module__]
        stem = cls.__module__.rpartition(".")[2]
        name = f"printed_{stem}"
        spec = importlib.util.spec_from_file_location(name, tmp_path / f"{stem}.py")
        assert spec is not None
        assert spec.loader is not None
        printed = importlib.util.module_from_spec(spec)
        sys.modules[name] = printed
        try:
            spec.loader.exec_module(printed)
            assert tables(printed) == tables(ours)
        finally:
            del sys.modules[name]
