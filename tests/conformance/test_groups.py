"""Consumer groups with real members that come and go."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from tests.conformance.clients import Client, ClientFailure, Message, Received
from tests.conformance.clients.model import ConsumerOptions
from tests.conformance.conftest import Topics
from tests.conformance.raw import RawClient
from tests.waiting import eventually_passes

PARTITIONS = 6


class Member:
    """A consumer that polls and commits in a thread of its own, as an application would."""

    def __init__(self, client: Client, topic: str, options: ConsumerOptions) -> None:
        self.received: list[Received] = []
        self._consumer = client.subscribe([topic], options)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._assignment: set[int] = set()
        self.committed = True
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                got = self._consumer.poll(0.1)
                self._assignment = {index for _, index in self._consumer.assignment()}
                self.committed = self.committed and not got
                self.received += got
                if not self.committed:
                    self._commit()
            self._consumer.close()
        except BaseException as error:  # noqa: BLE001 - raised again in the test's own thread
            self._failure = error

    def _commit(self) -> None:
        try:
            self._consumer.commit()
        except ClientFailure:
            # There was a rebalance: after it, commit the partitions that are still assigned.
            return
        self.committed = True

    def assignment(self) -> set[int]:
        if self._failure is not None:
            raise self._failure
        return self._assignment

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30)
        assert not self._thread.is_alive()
        if self._failure is not None:
            raise self._failure


class Crew:
    """The members of one test, all stopped at its end."""

    def __init__(self, client: Client, topic: str, group: str) -> None:
        self.client, self.topic, self.group = client, topic, group
        self.members: list[Member] = []
        self.gone: list[Member] = []

    def join(self, **options: Any) -> Member:
        member = Member(self.client, self.topic, ConsumerOptions(group=self.group, **options))
        self.members.append(member)
        return member

    def leave(self, member: Member) -> None:
        self.members.remove(member)
        self.gone.append(member)
        member.stop()

    def settle(self) -> None:
        """Wait until every partition has one owner and every member has its share."""

        def settled() -> None:
            shares = [member.assignment() for member in self.members]
            assert sorted(itertools.chain(*shares)) == list(range(PARTITIONS))
            assert {len(share) for share in shares} == {PARTITIONS // len(self.members)}

        eventually_passes(settled, within_s=40)

    def received(self) -> list[Received]:
        return [r for member in self.members + self.gone for r in member.received]

    def expect(self, count: int) -> None:
        def complete() -> None:
            for member in self.members:
                member.assignment()
            assert len(self.received()) >= count
            assert all(member.committed for member in self.members)

        eventually_passes(complete, within_s=40)


@pytest.fixture
def crew(client: Client, topics: Topics, group: str) -> Iterator[Crew]:
    crew = Crew(client, topics.create(partitions=PARTITIONS), group)
    yield crew
    for member in list(crew.members):
        crew.leave(member)


def values(prefix: str, count: int = 60) -> list[Message]:
    return [
        Message(f"{prefix}-{index}".encode(), partition=index % PARTITIONS)
        for index in range(count)
    ]


def test_members_come_and_go_and_every_record_is_read_once_in_order(crew: Crew) -> None:
    first, second = crew.join(), crew.join()
    crew.settle()
    crew.client.produce(crew.topic, values("two"))
    crew.expect(60)
    crew.join()
    crew.settle()
    crew.client.produce(crew.topic, values("three"))
    crew.expect(120)
    crew.leave(first)
    crew.leave(second)
    crew.settle()
    crew.client.produce(crew.topic, values("one"))
    crew.expect(180)
    got = crew.received()
    assert sorted((r.partition, r.offset) for r in got) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(30)
    ]
    sent = [m.value for prefix in ("two", "three", "one") for m in values(prefix)]
    assert sorted(r.value or b"" for r in got) == sorted(v or b"" for v in sent)
    for member in crew.members + crew.gone:
        for partition in range(PARTITIONS):
            offsets = [r.offset for r in member.received if r.partition == partition]
            assert offsets == sorted(offsets)


def test_records_flowing_through_rebalances_are_never_skipped(crew: Crew) -> None:
    crew.join()
    total = 0
    for step in range(3):
        crew.client.produce(crew.topic, values(f"a{step}"))
        joined = crew.join()
        crew.client.produce(crew.topic, values(f"b{step}"))
        total += 120
        if step == 1:
            crew.leave(joined)
    crew.client.produce(crew.topic, values("end"))
    total += 60

    def all_seen() -> None:
        for member in crew.members:
            member.assignment()
        seen = {(r.partition, r.offset) for r in crew.received()}
        assert len(seen) == total

    eventually_passes(all_seen, within_s=60)


def test_cooperative_members_rebalance_without_reading_twice(crew: Crew) -> None:
    if "cooperative-sticky" in crew.client.lacks:
        pytest.skip(
            f"{crew.client.name} has no cooperative-sticky assignor: a limit of the library, nothing to install"
        )
    first = crew.join(strategy="cooperative-sticky")
    crew.settle()
    crew.client.produce(crew.topic, values("alone"))
    crew.expect(60)
    crew.join(strategy="cooperative-sticky")
    crew.settle()
    kept = set(first.assignment())
    crew.client.produce(crew.topic, values("both"))
    crew.expect(120)
    crew.join(strategy="cooperative-sticky")
    crew.settle()
    assert first.assignment() < kept
    crew.client.produce(crew.topic, values("three"))
    crew.expect(180)
    assert sorted((r.partition, r.offset) for r in crew.received()) == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(30)
    ]


def describe(raw: RawClient, group: str) -> dict[str, Any]:
    (row,) = raw.call("describe_groups", 5, groups=[group])["groups"]
    found: dict[str, Any] = row
    return found


def test_static_member_restarts_without_a_rebalance(crew: Crew, raw: RawClient) -> None:
    if "static membership" in crew.client.lacks:
        pytest.skip(
            f"{crew.client.name} has no static membership: a limit of the library, nothing to install"
        )
    stays = crew.join(instance_id="stays")
    restarts = crew.join(instance_id="restarts")
    crew.settle()
    before = {m["group_instance_id"]: m for m in describe(raw, crew.group)["members"]}
    share = set(restarts.assignment())
    crew.leave(restarts)
    # A static member closes without leaving: its assignment is kept for the session timeout.
    kept = describe(raw, crew.group)
    assert kept["group_state"] == "Stable"
    assert {m["group_instance_id"] for m in kept["members"]} == {"stays", "restarts"}
    restarted = crew.join(instance_id="restarts")
    crew.settle()
    after = {m["group_instance_id"]: m for m in describe(raw, crew.group)["members"]}
    assert set(restarted.assignment()) == share
    assert set(stays.assignment()) | share == set(range(PARTITIONS))
    assert after["stays"]["member_id"] == before["stays"]["member_id"]
    assert after["restarts"]["member_id"] != before["restarts"]["member_id"]
    for name in ("stays", "restarts"):
        assert after[name]["member_assignment"] == before[name]["member_assignment"]


def test_group_is_described_with_its_members_and_empties(crew: Crew, raw: RawClient) -> None:
    member = crew.join()
    crew.settle()
    stable = describe(raw, crew.group)
    assert (stable["group_state"], stable["protocol_type"]) == ("Stable", "consumer")
    (row,) = stable["members"]
    assert row["client_host"] == "/127.0.0.1"
    assert row["member_assignment"]
    crew.client.produce(crew.topic, values("x"))
    crew.expect(60)
    crew.leave(member)

    def emptied() -> None:
        assert describe(raw, crew.group)["group_state"] == "Empty"

    eventually_passes(emptied)
