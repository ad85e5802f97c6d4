"""The classic group protocol on the wire: two members in one thread, one step at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.conftest import Topics
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

from kafkaesque.model.errors import ErrorCode

SESSION_MS, REBALANCE_MS = 10_000, 10_000


class GroupMember:
    """One member on its own connection, so that a waiting join does not block the others."""

    def __init__(self, bootstrap: str, group: str, **defaults: Any) -> None:
        self.raw = RawClient(bootstrap, client_id="member")
        self.group = group
        self.defaults = defaults
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = defaults.pop("instance", None)
        self._sent: Any = None

    def start_join(self, version: int = 7, **values: Any) -> None:
        request: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout": SESSION_MS,
            "rebalance_timeout": REBALANCE_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b"meta"}],
        }
        if version == 0:
            del request["rebalance_timeout"]
        if version >= 5:
            request["group_instance_id"] = self.instance
        self._sent = self.raw.send("join_group", version, **(request | self.defaults | values))

    def finish_join(self) -> dict[str, Any]:
        answer = self.raw.receive(self._sent)
        if answer["error_code"] in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = answer["member_id"]
        if answer["error_code"] == ErrorCode.NONE:
            self.generation = answer["generation_id"]
        return answer

    def join(self, version: int = 7, **values: Any) -> dict[str, Any]:
        """Join, then join again with the member id of the first answer."""

        def attempt() -> dict[str, Any]:
            self.start_join(version, **values)
            answer = self.finish_join()
            # Retried while the coordinator is still loading.
            assert answer["error_code"] not in (
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
                ErrorCode.NOT_COORDINATOR,
            )
            return answer

        answer = eventually_passes(attempt)
        if answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED:
            answer = attempt()
        return answer

    def sync(self, assignments: dict[str, bytes] | None = None, **values: Any) -> dict[str, Any]:
        rows = [
            {"member_id": member, "assignment": share}
            for member, share in (assignments or {}).items()
        ]
        request = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "assignments": rows,
        }
        return self.raw.call("sync_group", 5, **(request | values))

    def heartbeat(self, **values: Any) -> int:
        request = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
        }
        return int(self.raw.call("heartbeat", 4, **(request | values))["error_code"])

    def commit(self, topic: str, offset: int, partition: int = 0, **values: Any) -> int:
        row = {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": values.pop("epoch", -1),
            "committed_metadata": values.pop("metadata", ""),
        }
        request = {
            "group_id": self.group,
            "generation_id_or_member_epoch": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance,
            "topics": [{"name": topic, "partitions": [row]}],
        }
        answer = self.raw.call("offset_commit", 8, **(request | values))
        return int(answer["topics"][0]["partitions"][0]["error_code"])

    def leave(self) -> dict[str, Any]:
        row = {"member_id": self.member_id, "group_instance_id": self.instance}
        return self.raw.call("leave_group", 5, group_id=self.group, members=[row])


class Stage:
    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap, self.group = bootstrap, group
        self.members: list[GroupMember] = []

    def member(self, **options: Any) -> GroupMember:
        member = GroupMember(self.bootstrap, self.group, **options)
        self.members.append(member)
        return member

    def alone(self, **options: Any) -> GroupMember:
        """A group of one, stable."""
        member = self.member(**options)
        assert member.join()["error_code"] == ErrorCode.NONE
        assert member.sync({member.member_id: b"share"})["error_code"] == ErrorCode.NONE
        return member


@pytest.fixture
def stage(bootstrap: str, group: str) -> Iterator[Stage]:
    stage = Stage(bootstrap, group)
    yield stage
    for member in stage.members:
        member.raw.link.close()


def describe(raw: RawClient, group: str, version: int = 6) -> dict[str, Any]:
    (row,) = raw.call("describe_groups", version, groups=[group])["groups"]
    found: dict[str, Any] = row
    return found


def test_dynamic_member_gets_its_id_first_and_joins_with_it(stage: Stage) -> None:
    member = stage.member()

    def first() -> dict[str, Any]:
        member.start_join()
        answer = member.finish_join()
        assert answer["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
        return answer

    answer = eventually_passes(first)
    assert (answer["generation_id"], answer["members"]) == (-1, [])
    assert answer["member_id"].startswith("member-")
    joined = member.join()
    assert (joined["error_code"], joined["generation_id"]) == (ErrorCode.NONE, 1)
    assert joined["leader"] == joined["member_id"] == member.member_id
    assert (joined["protocol_type"], joined["protocol_name"]) == ("consumer", "range")
    assert [(m["member_id"], m["metadata"]) for m in joined["members"]] == [
        (member.member_id, b"meta")
    ]


@pytest.mark.parametrize("version", range(10))
def test_every_join_version(stage: Stage, version: int) -> None:
    answer = stage.member().join(version)
    assert (answer["error_code"], answer["generation_id"]) == (ErrorCode.NONE, 1)
    assert answer["leader"] == answer["member_id"]


def test_leader_assigns_and_followers_receive_their_assignments(
    stage: Stage, raw: RawClient
) -> None:
    leader, follower = stage.alone(), stage.member()
    follower.start_join()
    assert follower.finish_join()["error_code"] == ErrorCode.MEMBER_ID_REQUIRED
    follower.start_join()

    def rebalancing() -> None:
        assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS

    eventually_passes(rebalancing)
    assert describe(raw, stage.group)["group_state"] == "PreparingRebalance"
    led, followed = leader.join(), follower.finish_join()
    assert led["generation_id"] == followed["generation_id"] == 2
    assert led["leader"] == followed["leader"] == leader.member_id
    assert {m["member_id"] for m in led["members"]} == {leader.member_id, follower.member_id}
    assert followed["members"] == []
    assert describe(raw, stage.group)["group_state"] == "CompletingRebalance"
    waiting = follower.raw.send(
        "sync_group",
        5,
        group_id=stage.group,
        generation_id=2,
        member_id=follower.member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )
    shares = {leader.member_id: b"left", follower.member_id: b"right"}
    assert leader.sync(shares)["assignment"] == b"left"
    assert follower.raw.receive(waiting)["assignment"] == b"right"
    stable = describe(raw, stage.group)
    assert (stable["group_state"], stable["protocol_data"]) == ("Stable", "range")
    assert {m["member_id"]: m["member_assignment"] for m in stable["members"]} == shares
    assert (leader.heartbeat(), follower.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_silent_member_is_removed_when_the_rebalance_times_out(stage: Stage) -> None:
    silent = stage.alone(rebalance_timeout=500)
    newcomer = stage.member(rebalance_timeout=500)
    joined = newcomer.join()
    assert (joined["error_code"], joined["generation_id"]) == (ErrorCode.NONE, 2)
    assert [m["member_id"] for m in joined["members"]] == [newcomer.member_id]
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_member_starts_a_rebalance(stage: Stage) -> None:
    leader, other = stage.alone(), stage.member()
    other.start_join()
    other.finish_join()
    other.start_join()
    eventually_passes(lambda: _expect(leader.heartbeat(), 27))
    leader.join()
    other.finish_join()
    leader.sync({leader.member_id: b"a", other.member_id: b"b"})
    left = other.leave()
    assert left["error_code"] == ErrorCode.NONE
    assert [m["error_code"] for m in left["members"]] == [ErrorCode.NONE]
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.join()["generation_id"] == 3
    assert other.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def _expect(got: int, wanted: int) -> None:
    assert got == wanted


@pytest.mark.parametrize(
    ("values", "code"),
    [
        pytest.param({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID, id="unknown member"),
        pytest.param(
            {"session_timeout": 1}, ErrorCode.INVALID_SESSION_TIMEOUT, id="session too short"
        ),
        pytest.param(
            {"session_timeout": 100_000_000},
            ErrorCode.INVALID_SESSION_TIMEOUT,
            id="session too long",
        ),
        pytest.param({"group_id": ""}, ErrorCode.INVALID_GROUP_ID, id="empty group id"),
        pytest.param({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="no protocols"),
        pytest.param(
            {"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, id="no protocol type"
        ),
        pytest.param(
            {"protocol_type": "connect"},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            id="another protocol type",
        ),
        pytest.param(
            {"protocols": [{"name": "x", "metadata": b""}]},
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            id="nothing in common",
        ),
    ],
)
def test_refused_joins(stage: Stage, values: dict[str, Any], code: int) -> None:
    stage.alone()
    answer = stage.member().join(**values)
    assert (answer["error_code"], answer["generation_id"]) == (code, -1)
    assert answer["protocol_name"] is None


def test_sync_refusals_and_repeats(stage: Stage) -> None:
    member = stage.member()
    member.join()
    assert member.heartbeat() == ErrorCode.NONE
    assert member.sync(generation_id=9)["error_code"] == ErrorCode.ILLEGAL_GENERATION
    assert member.sync(member_id="stranger")["error_code"] == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync(protocol_name="other")["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for half_named in ({"protocol_name": None}, {"protocol_type": None}):
        assert member.sync(**half_named)["error_code"] == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync({member.member_id: b"mine"})["assignment"] == b"mine"
    again = member.sync()
    assert (again["error_code"], again["assignment"]) == (ErrorCode.NONE, b"mine")


def test_heartbeat_refusals(stage: Stage, group: str) -> None:
    member = stage.alone()
    assert member.heartbeat() == ErrorCode.NONE
    assert member.heartbeat(generation_id=member.generation + 1) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat(member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id=f"{group}-absent") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id="") == ErrorCode.INVALID_GROUP_ID


def test_commit_rules(stage: Stage, topic: str, topics: Topics) -> None:
    member = stage.member()
    member.join()
    assert member.commit(topic, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    member.sync({member.member_id: b""})
    assert member.commit(topic, 5, metadata="note", epoch=0) == ErrorCode.NONE
    assert member.commit(topic, 5, partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.commit(topics.name(), 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.commit(topic, 6, generation_id_or_member_epoch=9) == ErrorCode.ILLEGAL_GENERATION
    assert member.commit(topic, 6, member_id="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
    assert (
        member.commit(topic, 6, member_id="", generation_id_or_member_epoch=-1)
        == ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert member.commit(topic, 6, metadata="x" * 4097) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    fetched = member.raw.call(
        "offset_fetch",
        7,
        group_id=stage.group,
        topics=[{"name": topic, "partition_indexes": [0, 1]}],
    )
    rows = fetched["topics"][0]["partitions"]
    assert [
        (r["committed_offset"], r["committed_leader_epoch"], r["metadata"], r["error_code"])
        for r in rows
    ] == [(5, 0, "note", 0), (-1, -1, "", 0)]


def test_offsets_without_members(raw: RawClient, stage: Stage, topic: str, group: str) -> None:
    member = stage.member()

    def committed() -> None:
        assert member.commit(topic, 42) == ErrorCode.NONE

    eventually_passes(committed)
    row = describe(raw, group)
    assert (row["group_state"], row["protocol_type"], row["members"]) == ("Empty", "", [])
    fetched = raw.call(
        "offset_fetch",
        8,
        groups=[
            {"group_id": group, "topics": None},
            {
                "group_id": f"{group}-absent",
                "topics": [{"name": topic, "partition_indexes": [0]}],
            },
        ],
    )["groups"]
    by_group = {row["group_id"]: row for row in fetched}
    ((partition,),) = [t["partitions"] for t in by_group[group]["topics"]]
    assert (partition["partition_index"], partition["committed_offset"]) == (0, 42)
    ((absent,),) = [t["partitions"] for t in by_group[f"{group}-absent"]["topics"]]
    assert (absent["committed_offset"], absent["error_code"]) == (-1, ErrorCode.NONE)


@pytest.mark.parametrize("version", range(1, 10))
def test_every_offset_fetch_version(
    raw: RawClient, stage: Stage, topic: str, group: str, version: int
) -> None:
    eventually_passes(lambda: _expect(stage.member().commit(topic, 7), 0))
    topics = [{"name": topic, "partition_indexes": [0]}]
    if version < 8:
        answer = raw.call("offset_fetch", version, group_id=group, topics=topics)
    else:
        asked = [{"group_id": group, "topics": topics}]
        (answer,) = raw.call("offset_fetch", version, groups=asked)["groups"]
    assert answer["topics"][0]["partitions"][0]["committed_offset"] == 7


@pytest.mark.parametrize("version", range(2, 10))
def test_every_offset_commit_version(raw: RawClient, topic: str, group: str, version: int) -> None:
    request = {
        "group_id": group,
        "member_id": "",
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 3}]}],
    }

    def committed() -> None:
        answer = raw.call("offset_commit", version, **request)
        assert answer["topics"][0]["partitions"][0]["error_code"] == ErrorCode.NONE

    eventually_passes(committed)


@pytest.mark.parametrize("version", range(2, 10))
def test_commit_without_partitions_returns_only_unknown_topics(
    raw: RawClient, topic: str, group: str, version: int
) -> None:
    names = [topic, f"{topic}-absent"]
    answer = raw.call(
        "offset_commit",
        version,
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[{"name": name, "partitions": []} for name in names],
    )
    assert answer["topics"] == [{"name": f"{topic}-absent", "partitions": []}]


def test_offset_delete(raw: RawClient, stage: Stage, topic: str, group: str) -> None:
    def forget(of: str, name: str) -> tuple[int, list[int]]:
        rows = [{"name": name, "partitions": [{"partition_index": 0}]}]
        answer = raw.call("offset_delete", 0, group_id=of, topics=rows)
        return answer["error_code"], [
            p["error_code"] for t in answer["topics"] for p in t["partitions"]
        ]

    eventually_passes(lambda: _expect(stage.member().commit(topic, 7), 0))
    assert forget(f"{group}-absent", topic) == (ErrorCode.GROUP_ID_NOT_FOUND, [])
    assert forget(group, f"{topic}-absent") == (
        ErrorCode.NONE,
        [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION],
    )
    assert forget(group, topic) == (ErrorCode.NONE, [ErrorCode.NONE])
    answer = raw.call("offset_fetch", 7, group_id=group, topics=None)
    assert answer["topics"] == []


def test_groups_are_deleted_only_when_empty(raw: RawClient, stage: Stage, group: str) -> None:
    def delete(*names: str) -> dict[str, int]:
        rows = raw.call("delete_groups", 2, groups_names=list(names))["results"]
        return {row["group_id"]: row["error_code"] for row in rows}

    member = stage.alone()
    assert delete(group, f"{group}-absent") == {
        group: ErrorCode.NON_EMPTY_GROUP,
        f"{group}-absent": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    member.leave()
    assert describe(raw, group)["group_state"] == "Empty"
    assert delete(group) == {group: ErrorCode.NONE}
    assert describe(raw, group)["error_code"] == ErrorCode.GROUP_ID_NOT_FOUND


def test_unknown_group_is_dead(raw: RawClient, group: str) -> None:
    for version in range(6):
        row = describe(raw, group, version)
        assert (row["error_code"], row["group_state"], row["members"]) == (
            ErrorCode.NONE,
            "Dead",
            [],
        )
    row = raw.call("describe_groups", 6, groups=[group], include_authorized_operations=True)[
        "groups"
    ][0]
    assert (row["error_code"], row["authorized_operations"]) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        -2147483648,
    )


def test_leaving_an_unknown_group_fails(raw: RawClient, group: str) -> None:
    names = [("stranger", None), ("", "instance")]
    rows = [{"member_id": member, "group_instance_id": name} for member, name in names]

    def left() -> None:
        answer = raw.call("leave_group", 5, group_id=group, members=rows)
        assert answer["error_code"] == ErrorCode.NONE
        assert [row["error_code"] for row in answer["members"]] == [
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.UNKNOWN_MEMBER_ID,
        ]

    eventually_passes(left)
    assert (
        raw.call("leave_group", 2, group_id=group, member_id="stranger")["error_code"]
        == ErrorCode.UNKNOWN_MEMBER_ID
    )


def test_listing_filters_by_state_and_type(raw: RawClient, stage: Stage, group: str) -> None:
    def listed(version: int = 5, **filters: Any) -> dict[str, Any] | None:
        groups = raw.call("list_groups", version, **filters)["groups"]
        return next((row for row in groups if row["group_id"] == group), None)

    stage.alone()
    row = listed()
    assert row is not None
    assert (row["protocol_type"], row["group_state"], row["group_type"]) == (
        "consumer",
        "Stable",
        "classic",
    )
    assert listed(states_filter=["stable"]) is not None
    assert listed(states_filter=["Empty"]) is None
    assert listed(types_filter=["Classic"]) is not None
    assert listed(types_filter=["consumer"]) is None
    for version in range(5):
        assert listed(version) is not None


def test_static_member_rejoins_without_a_rebalance(stage: Stage, topic: str) -> None:
    first = stage.alone(instance="one")
    assert first.member_id.startswith("one-")
    back = stage.member(instance="one")
    answer = back.join(9)
    assert (answer["error_code"], answer["generation_id"]) == (ErrorCode.NONE, first.generation)
    assert answer["skip_assignment"]
    assert back.member_id != first.member_id
    assert back.sync()["assignment"] == b"share"
    assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert first.heartbeat(group_instance_id=None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert first.commit(topic, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert back.heartbeat() == ErrorCode.NONE


def test_static_member_is_removed_by_its_instance_id(raw: RawClient, stage: Stage) -> None:
    stage.alone(instance="one")
    rows = [
        {"member_id": "", "group_instance_id": "one"},
        {"member_id": "", "group_instance_id": "absent"},
    ]
    answer = raw.call("leave_group", 5, group_id=stage.group, members=rows)
    assert [row["error_code"] for row in answer["members"]] == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert describe(raw, stage.group)["group_state"] == "Empty"


@pytest.mark.parametrize("version", range(7))
def test_every_find_coordinator_version(raw: RawClient, group: str, version: int) -> None:
    known = raw.call("metadata", 12, topics=[])["brokers"]

    def found() -> dict[str, Any]:
        if version < 4:
            answer = raw.call("find_coordinator", version, key=group)
        else:
            (answer,) = raw.call("find_coordinator", version, coordinator_keys=[group])[
                "coordinators"
            ]
            assert answer["key"] == group
        assert answer["error_code"] == ErrorCode.NONE
        return answer

    answer = eventually_passes(found)
    assert (answer["node_id"], answer["host"], answer["port"]) in [
        (b["node_id"], b["host"], b["port"]) for b in known
    ]
