"""Consumer groups as nodes: names, owners, and which broker's answer is used."""

from __future__ import annotations

from kafkaesque.broker.coordination.rules.consumers import (
    GroupRow,
    LastAnswers,
    MemberRow,
    consumer_leaves,
    owner_for,
)
from kafkaesque.broker.coordination.rules.paths import check_path


def group(name: str, offset: int = 0) -> GroupRow:
    return GroupRow(name, [], {"t": {0: offset}})


def test_group_is_shown_with_members_owners_and_offsets() -> None:
    row = GroupRow("g", [MemberRow("m/1", ["t"], {"t": [0, 2]})], {"t": {0: 7}})
    leaves = dict(consumer_leaves([row]))
    assert leaves["/consumers/g/ids/m%2F1"].data.endswith(b'"subscription":{"t":1}}')
    assert leaves["/consumers/g/owners/t/2"].data == b"m/1"
    assert leaves["/consumers/g/offsets/t/0"].data == b"7"
    owners = {path: leaf.owner for path, leaf in leaves.items() if leaf.owner}
    assert set(owners) == {
        "/consumers/g/ids/m%2F1",
        "/consumers/g/owners/t/0",
        "/consumers/g/owners/t/2",
    }
    # The same number in every process, unlike Python's hash().
    assert set(owners.values()) == {owner_for("m/1")} == {(1 << 56) + 4_237_080_886}


def test_group_whose_name_is_no_node_name_is_shown_encoded() -> None:
    leaves = dict(consumer_leaves([group("team/billing"), group(".."), group("50%"), group("")]))
    shown = {path.split("/")[2] for path in leaves if path.count("/") > 1}
    assert shown == {"team%2Fbilling", "%2E%2E", "50%25"}
    for path in leaves:
        check_path(path)


def test_answer_of_a_broker_holds_until_it_gives_another_or_leaves() -> None:
    answers = LastAnswers()
    answers.update(1, [group("a")])
    answers.update(2, [group("b"), group("c")])
    assert set(answers.groups({1, 2})) == {"a", "b", "c"}
    answers.update(2, [group("c")])
    assert set(answers.groups({1, 2})) == {"a", "c"}
    assert set(answers.groups({1})) == {"a"}
    # Back without an answer yet: its groups of before are not shown again.
    assert set(answers.groups({1, 2})) == {"a"}


def test_group_that_moved_is_shown_as_in_the_last_answer() -> None:
    answers = LastAnswers()
    answers.update(1, [group("g", 1)])
    answers.update(2, [group("g", 2)])
    assert answers.groups({1, 2})["g"].offsets == {"t": {0: 2}}
    answers.update(1, [group("g", 3)])
    assert answers.groups({1, 2})["g"].offsets == {"t": {0: 3}}
