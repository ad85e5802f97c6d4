"""One app server of a cluster that has one master: elected by an ephemeral node, with kazoo.

Every app server tries to create the ephemeral node /clusterx/master with its own name in it. One
succeeds and is master; the others watch the node. When the master's session ends the node goes, the
watches fire, and all try again. Says what it is on standard output, one JSON object a line:

    {"name": "app-1", "role": "master", "master": "app-1", "fence": 17}

`fence` grows with every master: a storage that remembers the highest it has seen can refuse what a
master that was away (paused, cut off) still sends.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from contextlib import suppress

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import WatchedEvent


class AppServer:
    """Takes part in the election for `path` under `name`."""

    def __init__(self, client: KazooClient, path: str, name: str) -> None:
        self._client = client
        self._path = path
        self._name = name
        self._changed = threading.Event()
        client.add_listener(self._state_changed)

    def run(self) -> None:
        """Compete, then wait for a change, for ever."""
        while True:
            self._changed.clear()
            self._client.retry(self._compete)
            self._changed.wait()
            if self._client.state != KazooState.CONNECTED:
                # Nobody may act as master who cannot know whether it still is: the others may have
                # elected another one by now.
                self._say("nobody", None, None)
                while self._client.state != KazooState.CONNECTED:
                    self._changed.clear()
                    self._changed.wait(0.05)

    def _compete(self) -> None:
        while True:
            with suppress(NodeExistsError):  # somebody is master already, perhaps we ourselves
                self._client.create(self._path, self._name.encode(), ephemeral=True, makepath=True)
            try:
                master, stat = self._client.get(self._path, watch=self._node_changed)
            except NoNodeError:
                continue  # gone in between: try again
            is_mine = stat.ephemeralOwner == self._client.client_id[0]
            self._say("master" if is_mine else "follower", master.decode(), stat.czxid)
            return

    def _node_changed(self, _event: WatchedEvent) -> None:
        self._changed.set()

    def _state_changed(self, _state: str) -> None:
        self._changed.set()

    def _say(self, role: str, master: str | None, fence: int | None) -> None:
        words = {"name": self._name, "role": role, "master": master, "fence": fence}
        print(json.dumps(words), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One app server that takes part in an election.")
    parser.add_argument("--server", default="127.0.0.1:2181", help="ZooKeeper's HOST:PORT[,...]")
    parser.add_argument("--path", default="/clusterx/master")
    parser.add_argument("--name", required=True)
    parser.add_argument("--session-timeout", type=float, default=4.0, metavar="SECONDS")
    options = parser.parse_args()
    client = KazooClient(hosts=options.server, timeout=options.session_timeout)
    client.start()
    try:
        AppServer(client, options.path, options.name).run()
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        client.stop()


if __name__ == "__main__":
    main()
