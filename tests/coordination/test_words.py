from __future__ import annotations

import pytest

from kafkaesque.broker.coordination.words import ServerCounts, ServerView, answer_word
from kafkaesque.coordination.machine import Machine
from kafkaesque.coordination.watches import WatchCounts

VIEW = ServerView(Machine(), ServerCounts(7, 8), WatchCounts(2, 1), 3, 4, "follower")
ALL = frozenset(("ruok", "srvr", "mntr", "envi", "conf"))


def test_each_word_has_its_answer() -> None:
    assert answer_word("ruok", VIEW, ALL) == "imok"
    assert "Mode: follower\n" in answer_word("srvr", VIEW, ALL)
    assert "zookeeper.version=3." in answer_word("envi", VIEW, ALL)
    figures = dict(line.split("\t") for line in answer_word("mntr", VIEW, ALL).splitlines())
    assert figures["zk_znode_count"] == "4"
    assert figures["zk_num_alive_connections"] == "3"
    assert figures["zk_watch_count"] == "2"


@pytest.mark.parametrize("word", ["conf", "dump", "wchp"])
def test_word_that_is_not_allowed_or_not_ours_says_so(word: str) -> None:
    allowed = ALL if word == "conf" else frozenset({"ruok"})
    assert answer_word(word, VIEW, allowed) == (
        f"{word} is not executed because it is not in the whitelist.\n"
    )
