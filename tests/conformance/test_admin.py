"""Administration with the libraries' own admin clients."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from tests.conformance.batches import Record, encode
from tests.conformance.clients import Client, ClientFailure, Message, Unavailable, open_client
from tests.conformance.clients.admin import ADMINS, Admin, Setting, open_admin
from tests.conformance.clients.model import ConsumerOptions
from tests.conformance.conftest import Topics
from tests.conformance.fetching import produce
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

BASE = int(time.time() * 1000) - 100_000


@pytest.fixture(scope="session")
def open_admins() -> Iterator[dict[str, Admin]]:
    opened: dict[str, Admin] = {}
    yield opened
    for one in opened.values():
        one.close()


@pytest.fixture(params=ADMINS)
def library(request: pytest.FixtureRequest, bootstrap: str, open_admins: dict[str, Admin]) -> Admin:
    if request.param not in open_admins:
        try:
            open_admins[request.param] = open_admin(request.param, bootstrap)
        except Unavailable as reason:
            pytest.skip(f"this client cannot be had here: {reason}")
    return open_admins[request.param]


@pytest.fixture(scope="session")
def bystander(bootstrap: str) -> Client:
    """Produces and consumes for the tests of admin calls."""
    return open_client("confluent-kafka", bootstrap)


def refused(code: int) -> _Refused:
    return _Refused(code)


class _Refused:
    def __init__(self, code: int) -> None:
        self.code = code
        self._raises = pytest.raises(ClientFailure)

    def __enter__(self) -> None:
        self._info = self._raises.__enter__()

    def __exit__(self, *error: object) -> bool:
        done = bool(self._raises.__exit__(*error))  # type: ignore[arg-type]
        assert self._info.value.code == self.code, self._info.value
        return done


def setting(library: Admin, topic: str, key: str) -> Setting:
    return library.settings("topic", topic)[key]


def test_topic_is_created_and_deleted(library: Admin, topics: Topics) -> None:
    name = topics.name()
    library.create_topic(name, 3, configs={"retention.ms": "5000", "cleanup.policy": "compact"})
    topics.wait_for(name, 3)
    assert name in library.topics()
    assert [index for index, _, _ in library.partitions(name)] == [0, 1, 2]
    assert setting(library, name, "retention.ms").value == "5000"
    with refused(36):
        library.create_topic(name)
    library.delete_topic(name)
    eventually_passes(lambda: _absent(name, library))
    with refused(3):
        library.delete_topic(name)


def _absent(name: str, library: Admin) -> None:
    assert name not in library.topics()


def test_validate_only_and_refused_topics_are_not_created(library: Admin, topics: Topics) -> None:
    name = topics.name()
    library.create_topic(name, validate_only=True)
    with refused(40):
        library.create_topic(name, configs={"nope": "1"})
    with refused(17):
        library.create_topic("bad name")
    assert name not in library.topics()


def test_explicit_assignment(library: Admin, topics: Topics) -> None:
    name = topics.name()
    _, broker, _ = library.cluster()
    library.create_topic(name, assignments=[[broker], [broker]])
    topics.wait_for(name, 2)
    assert library.partitions(name) == [(0, broker, [broker]), (1, broker, [broker])]
    with refused(39):
        library.create_topic(topics.name(), assignments=[[broker + 1000]])


def test_partitions_grow(library: Admin, topic: str, topics: Topics) -> None:
    library.create_partitions(topic, 5)
    topics.wait_for(topic, 5)
    assert len(library.partitions(topic)) == 5
    with refused(37):
        library.create_partitions(topic, 2)


def test_deleting_records_moves_the_low_watermark(
    library: Admin, topic: str, bystander: Client
) -> None:
    bystander.produce(topic, [Message(b"%d" % index) for index in range(10)])
    assert library.delete_records(topic, 6) == 6
    assert library.list_offset(topic, "earliest")[0] == 6
    assert library.list_offset(topic, "latest")[0] == 10
    assert bystander.watermarks(topic, 0) == (6, 10)


def test_settings_are_set_described_and_removed(library: Admin, topic: str) -> None:
    default = setting(library, topic, "retention.ms")
    assert default == Setting("604800000", "DEFAULT_CONFIG", read_only=False, sensitive=False)
    library.alter(topic, "retention.ms", "5000")

    def altered() -> None:
        now = setting(library, topic, "retention.ms")
        assert now.value == "5000"
        assert now.source in ("DYNAMIC_TOPIC_CONFIG", "TOPIC_CONFIG")

    eventually_passes(altered)
    library.alter(topic, "retention.ms", None)
    eventually_passes(lambda: _is(setting(library, topic, "retention.ms"), default))
    with refused(40):
        library.alter(topic, "retention.ms", "never")


def _is(got: object, wanted: object) -> None:
    assert got == wanted


def test_broker_settings(library: Admin) -> None:
    _, broker, _ = library.cluster()
    found = library.settings("broker", str(broker))
    assert found["message.max.bytes"].value == "1048588"
    assert found["num.partitions"].read_only
    assert not found["num.partitions"].sensitive


def test_cluster_is_described(library: Admin, raw: RawClient) -> None:
    known = raw.call("metadata", 12, topics=[])
    nodes = [(b["node_id"], b["host"], b["port"]) for b in known["brokers"]]
    assert library.cluster() == (known["cluster_id"], known["controller_id"], nodes)


def test_offsets_are_listed_by_every_spec(library: Admin, topic: str, bystander: Client) -> None:
    sent = [Message(b"x", timestamp_ms=BASE + at) for at in (10, 30, 20)]
    bystander.produce(topic, sent)
    assert library.list_offset(topic, "earliest")[0] == 0
    assert library.list_offset(topic, "latest")[0] == 3
    assert library.list_offset(topic, "max_timestamp") == (1, BASE + 30)
    assert library.list_offset(topic, BASE + 15) == (1, BASE + 30)


def test_log_dirs_count_bytes(library: Admin, topics: Topics, raw: RawClient) -> None:
    if "log dirs" in library.lacks:
        pytest.skip(
            f"{library.name} has no DescribeLogDirs: a limit of the library, nothing to install"
        )
    topic = topics.create(partitions=2)
    batch = encode([Record(b"k", b"v" * 100)])
    produce(raw, topic, batch, partition=1)
    assert library.log_sizes(topic) == {0: 0, 1: len(batch)}


def test_group_is_listed_described_and_deleted(
    library: Admin, topics: Topics, group: str, bystander: Client
) -> None:
    topic = topics.create(partitions=2)
    bystander.produce(topic, [Message(b"x", partition=index) for index in (0, 1)])
    consumer = bystander.subscribe([topic], ConsumerOptions(group=group))
    try:
        consumer.take(2)
        consumer.commit()
        assert library.groups()[group] == "stable"
        assert library.describe_group(group) == ("stable", [{(topic, 0), (topic, 1)}])
        assert library.group_offsets(group) == {(topic, 0): 1, (topic, 1): 1}
        with refused(68):
            library.delete_group(group)
        with pytest.raises(ClientFailure):
            library.alter_group_offset(group, topic, 0)
    finally:
        consumer.close()
    eventually_passes(lambda: _is(library.describe_group(group), ("empty", [])))
    library.delete_group(group)
    assert group not in library.groups()


def test_group_offsets_are_altered_and_deleted(
    library: Admin, topic: str, group: str, bystander: Client
) -> None:
    bystander.produce(topic, [Message(b"%d" % index) for index in range(10)])
    library.alter_group_offset(group, topic, 7)
    assert library.group_offsets(group) == {(topic, 0): 7}
    consumer = bystander.subscribe([topic], ConsumerOptions(group=group))
    try:
        assert consumer.take(3)[0].offset == 7
    finally:
        consumer.close()
    if "delete group offsets" in library.lacks:
        pytest.skip(
            f"{library.name} has no OffsetDelete: a limit of the library, nothing to install"
        )
    eventually_passes(lambda: _is(library.describe_group(group), ("empty", [])))
    library.delete_group_offset(group, topic)
    assert library.group_offsets(group) == {}


def test_offsets_of_a_subscribed_topic_are_not_deleted(
    library: Admin, topic: str, group: str, bystander: Client
) -> None:
    if "delete group offsets" in library.lacks:
        pytest.skip(
            f"{library.name} has no OffsetDelete: a limit of the library, nothing to install"
        )
    bystander.produce(topic, [Message(b"x")])
    consumer = bystander.subscribe([topic], ConsumerOptions(group=group))
    try:
        consumer.take(1)
        consumer.commit()
        with refused(86):
            library.delete_group_offset(group, topic)
    finally:
        consumer.close()
