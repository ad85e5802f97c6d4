from __future__ import annotations

from dataclasses import replace

import pytest
from tests.broker.coordination.rig import ALICE, Rig, create

from kafkaesque.admin.zookeeper import read_dump
from kafkaesque.broker.coordination.four_letter_words import (
    ClientView,
    PacketCounts,
    ServerView,
    answer_word,
)
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.vocabulary import CreateMode
from kafkaesque.broker.coordination.rules.watches import WatchCounts

CLIENTS = (ClientView("h:1", 0xA1), ClientView("h:2", 0), ClientView("h:3", 0xB2))
VIEW = ServerView(Machine(), PacketCounts(7, 8), WatchCounts(2, 1), CLIENTS, 4, "follower")
ALL = frozenset(("ruok", "srvr", "mntr", "envi", "dump", "conf"))


def test_each_word_has_its_answer() -> None:
    assert answer_word("ruok", VIEW, ALL) == "imok"
    assert "Mode: follower\n" in answer_word("srvr", VIEW, ALL)
    assert "zookeeper.version=3." in answer_word("envi", VIEW, ALL)
    figures = dict(line.split("\t") for line in answer_word("mntr", VIEW, ALL).splitlines())
    assert figures["zk_znode_count"] == "4"
    assert figures["zk_num_alive_connections"] == "3"
    assert figures["zk_watch_count"] == "2"


def test_dump_lists_all_sessions_and_this_servers_connections_without_paths() -> None:
    rig = Rig()
    rig.write(create("/secret-name", mode=CreateMode.EPHEMERAL), ALICE)
    answer = answer_word("dump", replace(VIEW, machine=rig.machine), ALL)
    assert "Global Sessions(2):\n0x65\t10000ms\n0x66\t10000ms\n" in answer
    assert "\tip: /h:1 sessionId: 0xa1\n" in answer
    assert "secret-name" not in answer
    # As `kafkaesque coord sessions` reads it.
    dump = read_dump(answer)
    assert dump is not None
    assert dump.timeouts_ms == {"0x65": 10_000, "0x66": 10_000}
    assert dump.clients == {"0xa1": "h:1", "0x0": "h:2", "0xb2": "h:3"}


@pytest.mark.parametrize("word", ["conf", "dump", "wchp"])
def test_word_that_is_not_allowed_or_not_ours_says_so(word: str) -> None:
    allowed = ALL if word == "conf" else frozenset({"ruok"})
    assert answer_word(word, VIEW, allowed) == (
        f"{word} is not executed because it is not in the whitelist.\n"
    )
