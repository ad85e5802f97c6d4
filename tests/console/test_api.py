"""The JSON API with a real broker: documents, message search and operator actions."""

from __future__ import annotations

import csv
import io
import json
import re
from urllib.parse import quote

import pytest
from confluent_kafka import Producer
from tests.console.conftest import ORDERS, READ
from tests.console.running_console import (
    HOSTILE,
    PASSWORD,
    WITHIN_S,
    RunningConsole,
    read_as_group,
    write,
)
from tests.waiting import eventually

from kafkaesque.console.rules.exposition import read_exposition
from kafkaesque.testing import Broker

pytestmark = pytest.mark.timeout(600)
"""The first test starts and fills the broker."""


def test_overview_of_a_healthy_cluster(console: RunningConsole) -> None:
    overview = console.get("/api/overview")
    assert overview["brokers"] == {"up": 1, "total": 1}
    assert overview["topics"] >= 4
    assert overview["health"]["level"] in ("good", "warn")
    assert {row["name"] for row in overview["clients"]} >= {"confluent-kafka-python"}


def test_topics_have_counts_sizes_and_groups(console: RunningConsole) -> None:
    def row() -> dict[str, object] | None:
        found: dict[str, object] = console.get("/api/topics?q=orders")["items"][0]
        return found if found["size_bytes"] and found["retention_ms"] else None

    found = eventually(row, "sizes are known")
    assert found["records"] == ORDERS
    assert found["groups"] == [{"group": "billing", "lag": ORDERS - READ}]
    assert found["retention_ms"] == 604_800_000
    assert 604_000_000 < found["retention_left_ms"] <= 604_800_000
    internal = console.get("/api/topics?show=internal")["items"]
    assert "__consumer_offsets" in {item["name"] for item in internal}


def test_a_topic_has_partitions_and_settings(console: RunningConsole) -> None:
    topic = console.get("/api/topics/orders")
    assert topic["partition_rows"][0]["end"] == ORDERS
    settings = {row["name"]: row for row in console.get("/api/topics/orders/settings")["settings"]}
    assert settings["retention.ms"]["value"] == "604800000"
    assert console.ask("/api/topics/nowhere")[0] == 404


def test_a_group_has_lag_status_and_no_members(console: RunningConsole) -> None:
    group = console.get("/api/groups/billing")
    assert (group["lag"], group["status"], group["members"]) == (ORDERS - READ, "stopped", 0)
    assert group["offsets"][0]["committed"] == READ
    assert console.ask("/api/groups/nobody")[0] == 404


def test_messages_come_newest_first_and_are_decoded(console: RunningConsole) -> None:
    answer = console.get("/api/topics/orders/messages?limit=5")
    assert [row["offset"] for row in answer["records"]] == [299, 298, 297, 296, 295]
    first = answer["records"][0]
    assert first["value"]["kind"] == "json"
    assert first["value"]["data"]["id"] == 299
    assert first["headers"] == [["number", "299"]]
    assert answer["progress"]["note"] == "limit reached"


@pytest.mark.parametrize(
    ("query", "offsets"),
    [
        ("from=oldest&limit=2", [0, 1]),
        ("from=offset:298", [298, 299]),
        ("from=last:1", [299]),
        ("from=time:2100-01-01T00:00:00Z", []),
        ("from=oldest&filter=" + quote('value.id in (7, 9) and value.state == "open"'), [7]),
        ("from=oldest&filter=" + quote("value.user.id == 3") + "&limit=2", [3, 10]),
        ("filter=" + quote('value contains "\\"id\\": 42,"'), [42]),
        ("from=oldest&key=key-4&limit=3", [4, 14, 24]),
        ("from=oldest&filter=" + quote('headers.number == "17"'), [17]),
    ],
)
def test_messages_from_anywhere_by_key_and_filter(
    console: RunningConsole, query: str, offsets: list[int]
) -> None:
    answer = console.get(f"/api/topics/orders/messages?{query}")
    assert [row["offset"] for row in answer["records"]] == offsets


def test_a_search_reports_how_much_it_scanned(console: RunningConsole) -> None:
    answer = console.get("/api/topics/orders/messages?filter=" + quote("value.id == -1"))
    assert answer["records"] == []
    assert answer["progress"]["scanned"] == ORDERS
    assert answer["progress"]["is_done"]
    status, body, _ = console.ask("/api/topics/orders/messages?filter=" + quote("value ="))
    assert status == 400
    assert b"filter" in body


def test_a_search_streams_records_and_progress(console: RunningConsole) -> None:
    _, body, headers = console.ask("/api/topics/orders/search?limit=3")
    assert headers["content-type"].startswith("text/event-stream")
    events = re.findall(r"event: (\w+)\ndata: (.*)\n", body.decode())
    assert [name for name, _ in events if name != "progress"] == ["records", "done"]
    assert len(json.loads(dict(events)["records"])) == 3


def test_hostile_content_is_returned_as_data(console: RunningConsole) -> None:
    answer = console.get("/api/topics/hostile/messages?from=oldest")
    shown = [row["value"]["data"] for row in answer["records"]]
    assert shown[0] == HOSTILE[0].decode()
    assert [row["value"]["kind"] for row in answer["records"]][2] == "json"
    assert shown[6] == HOSTILE[6].hex()


def test_export_contains_every_record(console: RunningConsole) -> None:
    _, body, headers = console.ask("/api/topics/orders/export?from=oldest&limit=100000")
    lines = [json.loads(line) for line in body.splitlines()]
    assert len(lines) == ORDERS
    assert 'filename="orders.ndjson"' in headers["content-disposition"]
    _, body, _ = console.ask("/api/topics/hostile/export?from=oldest&format=csv&limit=1000")
    rows = list(csv.reader(io.StringIO(body.decode())))
    assert rows[0][0] == "partition"
    assert len(rows) == 1 + len(HOSTILE)
    assert console.ask("/api/topics/orders/export?format=xls")[0] == 400


def test_the_histogram_counts_records_without_reading_them(console: RunningConsole) -> None:
    buckets = console.get("/api/topics/orders/histogram")["buckets"]
    assert len(buckets) == 60
    assert sum(bucket["count"] for bucket in buckets) == ORDERS


def test_history_events_raft_and_services_answer(console: RunningConsole) -> None:
    history = eventually(
        lambda: (
            (h := console.get("/api/history?series=records_in,lag&window=60"))["series"]["lag"]
            and h
        ),
        "history has points",
    )
    assert set(history["series"]) == {"records_in", "lag"}
    raft = console.get("/api/raft?q=orders")
    assert raft["controller"]["leader"] == 0
    assert raft["items"][0]["group"] == "orders-0"
    assert console.get("/api/events")["kind"] == ""
    assert console.get("/api/pipeline")["queries"][0]["rows_per_s"] == 12.5
    assert console.get("/api/gateways")["registered"] == []
    assert not console.get("/api/coordination")["is_present"]
    assert not console.get("/api/processes")["is_present"]
    tags = eventually(lambda: console.get("/api/trends")["tags"], "trends are folded")
    assert [row["hashtag"] for row in tags] == ["kafka", "raft", "<b>bold</b>"]


def test_every_documented_path_exists(console: RunningConsole) -> None:
    document = console.get("/api/openapi.json")
    names = {"{name}": "orders", "{action}": "kill"}
    for path, operations in document["paths"].items():
        wanted = path.replace("{name}", "billing" if "groups" in path else "orders")
        for name, value in names.items():
            wanted = wanted.replace(name, value)
        if "get" in operations and not wanted.endswith(("/search", "/dead")):
            assert console.ask(wanted)[0] == 200, path
        for method in operations.keys() - {"get"}:
            status, _, _ = console.ask(wanted, method.upper(), {})
            assert status in (400, 401, 403), (path, method, status)


# -- operator actions -----------------------------------------------------------------------------


def test_changes_require_an_operator(console: RunningConsole) -> None:
    body = {"value": "x"}
    assert console.ask("/api/topics/orders/records", "POST", body)[0] == 401
    wrong = {"Authorization": "Bearer wrong"}
    assert console.ask("/api/topics/orders/records", "POST", body, wrong)[0] in (401, 429)
    assert console.ask("/api/topics/orders", "DELETE")[0] == 401


def test_a_session_needs_its_csrf_token_and_the_same_site(console: RunningConsole) -> None:
    _, body, headers = console.ask("/api/session", "POST", {"password": PASSWORD})
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    session = {"Cookie": cookie.split(";")[0]}
    record = {"value": "by session"}
    target = "/api/topics/copies/records"
    assert console.ask(target, "POST", record, session)[0] == 403
    token = {"X-CSRF-Token": json.loads(body)["csrf"]}
    elsewhere = {"Sec-Fetch-Site": "cross-site"}
    assert console.ask(target, "POST", record, {**session, **token, **elsewhere})[0] == 403
    assert console.ask(target, "POST", record, {**session, **token})[0] == 200


def test_unknown_host_names_are_rejected(console: RunningConsole) -> None:
    assert console.ask("/api/overview", headers={"Host": "evil.example"})[0] == 421


def test_every_response_has_security_headers(console: RunningConsole) -> None:
    for path in ("/", "/api/overview", "/metrics", "/nowhere"):
        _, _, headers = console.ask(path)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_an_operator_produces_and_replays(console: RunningConsole) -> None:
    status, done = console.act(
        "/api/topics/copies/records",
        {"key": "k", "value": "written by hand", "headers": {"who": "me"}},
    )
    assert status == 200
    answer = console.get(f"/api/topics/copies/messages?from=offset:{done['offset']}")
    assert answer["records"][0]["value"]["data"] == "written by hand"
    assert answer["records"][0]["headers"] == [["who", "me"]]
    wanted = {"to": "copies", "query": {"filter": "value.id < 5"}}
    assert console.act("/api/topics/orders/replay", wanted)[1]["would_copy"] == 5
    status, done = console.act("/api/topics/orders/replay", {**wanted, "dry_run": False})
    assert (status, done["copied"]) == (200, 5)
    copied = console.get(
        "/api/topics/copies/messages?filter=" + quote('headers."replayed-from" exists')
    )
    assert len(copied["records"]) == 5
    assert console.act("/api/topics/orders/replay", {"to": "nowhere"})[0] == 404


def test_an_operator_creates_alters_and_deletes_a_topic(console: RunningConsole) -> None:
    new = {"name": "shortlived", "partitions": 2, "settings": {"retention.ms": "60000"}}
    assert console.act("/api/topics", new)[0] == 200
    assert console.act("/api/topics", new) == (
        409,
        {"error": "cannot create topic 'shortlived': a topic with this name already exists"},
    )
    console.wait_for_topics("shortlived")
    change = {"name": "retention.ms", "value": "120000"}
    assert console.act("/api/topics/shortlived/settings", change)[0] == 200
    settings = {r["name"]: r for r in console.get("/api/topics/shortlived/settings")["settings"]}
    assert (settings["retention.ms"]["value"], settings["retention.ms"]["is_set"]) == (
        "120000",
        True,
    )
    assert console.act("/api/topics/shortlived", method="DELETE")[0] == 200
    eventually(lambda: console.ask("/api/topics/shortlived")[0] == 404, "the topic is gone")
    texts = [event["text"] for event in console.get("/api/events")["events"]]
    assert "an operator deleted topic shortlived" in texts


def test_a_group_is_reset_after_a_dry_run(broker: Broker, console: RunningConsole) -> None:
    write(broker.bootstrap_servers, "resetting", [b"%d" % n for n in range(20)])
    read_as_group(broker.bootstrap_servers, "rewinder", "resetting", 20)
    console.wait_for_group("rewinder", lag=0, members=0)
    _, plan = console.act("/api/groups/rewinder/reset", {"to": "oldest"})
    assert plan["moves"] == [
        {"topic": "resetting", "partition": 0, "current": 20, "new": 0, "change": -20, "lag": 20}
    ]
    assert console.get("/api/groups/rewinder")["lag"] == 0
    status, _ = console.act("/api/groups/rewinder/reset", {"to": "shift:-5", "dry_run": False})
    assert status == 200
    console.wait_for_group("rewinder", lag=5)
    assert console.act("/api/groups/rewinder/reset", {"to": "soon"})[0] == 400
    assert console.act("/api/groups/rewinder", method="DELETE")[0] == 200


def test_dead_letters_are_listed_redriven_and_dropped(
    broker: Broker, console: RunningConsole
) -> None:
    servers = broker.bootstrap_servers
    call = {"id": "c1", "task": "charge", "args": {"euro": 5}, "sent_ms": 1}
    write(servers, "tasks.shop", [b"{}"])
    write(servers, "tasks.shop.dead", [json.dumps(call).encode()], key=b"tasks.shop/0/5")
    write(servers, "tasks.shop.dead", [b"not a call"], key=b"tasks.shop/0/6")
    console.wait_for_topics("tasks.shop", "tasks.shop.dead")
    letters = console.get("/api/tasks/shop/dead")["letters"]
    assert [(row["id"], row["task"]) for row in letters] == [
        ("tasks.shop/0/6", None),
        ("tasks.shop/0/5", "charge"),
    ]
    target = "/api/tasks/shop/redrive"
    for drop in (False, True):
        body = {"ids": ["tasks.shop/0/5", "tasks.shop/0/7"], "drop": drop}
        unknown = {"error": "shop has no dead letter tasks.shop/0/7"}
        assert console.act(target, body) == (404, unknown)
    assert len(console.get("/api/tasks/shop/dead")["letters"]) == 2
    assert console.act(target, {"ids": ["tasks.shop/0/5"]})[1] == {"queue": "shop", "sent_back": 1}
    sent = console.get("/api/topics/tasks.shop/messages?limit=1")["records"][0]
    assert sent["value"]["data"]["task"] == "charge"
    assert console.act(target, {"drop": True})[1] == {"queue": "shop", "dropped": 1}
    assert console.get("/api/tasks/shop/dead")["letters"] == []
    assert console.ask("/api/tasks/nowhere/dead")[0] == 404


def test_metrics_have_groups_topics_and_pages(console: RunningConsole) -> None:
    console.ask("/topics")
    page = read_exposition(console.ask("/metrics")[1].decode())
    assert page.value("kafkaesque_group_lag_records", group="billing") == ORDERS - READ
    assert page.value("kafkaesque_group_status", group="billing", status="stopped") == 1
    assert page.value("kafkaesque_cluster_brokers_up") == 1
    assert page.total("kafkaesque_console_page_seconds_count", page="topics.html") >= 1
    assert console.ask("/healthz")[1] == b"ok\n"
    assert console.ask("/readyz")[0] == 200


def test_live_parts_are_sent_when_they_change(broker: Broker, console: RunningConsole) -> None:
    import urllib.request

    with urllib.request.urlopen(f"{console.url}/live?_page=/topics&_series=records_in") as stream:
        seen = b""
        while b"event: points" not in seen:
            seen += stream.read1(65536)
        assert b'"live_table"' in seen
        assert b"hostile" in seen
        write(broker.bootstrap_servers, "newcomer", [b"x"])
        while b"/topics/newcomer" not in seen:
            seen += stream.read1(65536)


def test_every_metric_of_the_dashboard_exists(broker: Broker, console: RunningConsole) -> None:
    import urllib.request
    from pathlib import Path

    console.ask("/topics")
    document = Path(__file__).parents[2] / "docs" / "grafana" / "kafkaesque.json"
    asked = set(re.findall(r"kafkaesque_\w+", document.read_text()))
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics") as answer:
        metrics = answer.read().decode() + console.ask("/metrics")[1].decode()
    declared = set(re.findall(r"^# TYPE (\w+)", metrics, re.MULTILINE))
    # Links and followers have samples only if there are peers, but their families are always declared.
    missing = {
        name
        for name in asked
        if name not in declared and name.removesuffix("_bucket") not in declared
    }
    assert missing == set()


def test_group_that_has_read_every_committed_record_has_no_lag(
    console: RunningConsole, broker: Broker
) -> None:
    """A transaction marker takes an offset, and no client commits past it."""
    servers = broker.bootstrap_servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "ledger"})
    producer.init_transactions(WITHIN_S)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("ledger", value=b"%d" % number)
    producer.commit_transaction(WITHIN_S)
    read_as_group(servers, "auditors", "ledger", 3)
    found = console.wait_for_group("auditors", status="idle")
    assert found["lag"] == 0
    write(servers, "ledger", [b"one more"])
    assert console.wait_for_group("auditors", status="stopped")["lag"] == 2


def test_favicon_is_served(console: RunningConsole) -> None:
    status, body = console.ask("/favicon.ico")[:2]
    assert status == 200
    assert b"<svg" in body
