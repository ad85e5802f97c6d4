"""Responses to `dump` from a leader, a follower, and a server that does not permit it."""

from __future__ import annotations

import pytest

from kafkaesque.admin.zookeeper import Dump, read_dump

# From a standalone Apache ZooKeeper 3.9.3; a leader responds the same.
LEADING = """SessionTracker dump:
Session Sets (3)/(2):
0 expire at Mon Nov 16 11:33:02 UTC 2026:
1 expire at Mon Nov 16 11:33:03 UTC 2026:
\t0x10002cb41490001
1 expire at Mon Nov 16 11:33:04 UTC 2026:
\t0x10002cb41490000
ephemeral nodes dump:
Sessions with Ephemerals (1):
0x10002cb4149dead:
\t/x
Connections dump:
Connections Sets (2)/(2):
1 expire at Mon Nov 16 11:33:04 UTC 2026:
\tip: /127.0.0.1:35568 sessionId: 0x10002cb41490001
1 expire at Mon Nov 16 11:33:14 UTC 2026:
\tip: /127.0.0.1:43944 sessionId: 0x0
"""

FOLLOWING = """SessionTracker dump:
Global Sessions(2):
0x100\t10000ms
0x200\t4000ms
ephemeral nodes dump:
Sessions with Ephemerals (0):
Connections dump:
Connections Sets (1)/(1):
0 expire at Mon Nov 16 11:33:04 UTC 2026:
"""


@pytest.mark.parametrize(
    ("answer", "dump"),
    [
        pytest.param(
            LEADING,
            Dump(
                {"0x10002cb41490001": None, "0x10002cb41490000": None},
                {"0x10002cb41490001": "127.0.0.1:35568", "0x0": "127.0.0.1:43944"},
            ),
            id="leading",
        ),
        pytest.param(FOLLOWING, Dump({"0x100": 10_000, "0x200": 4000}, {}), id="following"),
        pytest.param(
            "dump is not executed because it is not in the whitelist.\n", None, id="refused"
        ),
        pytest.param(
            "This ZooKeeper instance is not currently serving requests\n", None, id="down"
        ),
        pytest.param("", None, id="silent"),
    ],
)
def test_dump_of_every_kind_of_server_is_parsed(answer: str, dump: Dump | None) -> None:
    assert read_dump(answer) == dump
