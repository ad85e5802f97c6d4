from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from kafkaesque.cli.listening import listening_inodes, process_listening_on

TABLE = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:2384 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1234 1
   1: 0100007F:2384 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 777 1
   2: 0100007F:0016 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 55 1
"""


def test_only_listening_sockets_of_the_port_count() -> None:
    assert listening_inodes(TABLE, 9092) == {"1234"}
    assert listening_inodes(TABLE, 9093) == set()


def test_without_proc_nothing_is_known(tmp_path: Path) -> None:
    assert process_listening_on(9092, tmp_path) is None


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc: run it on Linux")
def test_our_own_listener_is_found_by_pid() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        found = process_listening_on(server.getsockname()[1])
    assert found is not None
    assert found.endswith(f"pid {os.getpid()}")
