"""Three brokers of one cluster, each a process with a coordination listener on a port of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

from tests.conformance_zookeeper.raw import RawClient
from tests.waiting import eventually

from kafkaesque.lab.harness.cluster import BrokerCluster
from kafkaesque.testing.reserved_ports import HOST, ReservedPorts

VARIABLE = "KAFKAESQUE_COORDINATION_LISTENER"
COUNT = 3


class Brokers:
    """Three running brokers inside a `with`; ports stay the same over restarts."""

    def __init__(self, directory: Path) -> None:
        self._ports = ReservedPorts(COUNT)
        self.target = BrokerCluster(
            directory, count=COUNT, environment=lambda node: {VARIABLE: self.address(node)}
        )

    def __enter__(self) -> Self:
        try:
            self.target.bring_up(*self.target.nodes)
            self.wait_until_all_vote()
        except BaseException:
            # Ctrl-C too: no process outlives the error.
            self.target.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.target.close()
        self._ports.close()

    def address(self, node: int) -> str:
        return f"{HOST}:{self._ports.numbers[node]}"

    @property
    def addresses(self) -> str:
        """All addresses, in the format of ZooKeeper clients."""
        return ",".join(map(self.address, range(COUNT)))

    def node_at(self, port: int) -> int:
        return self._ports.numbers.index(port)

    def pause(self, node: int) -> None:
        self.target.pause(node)

    def resume(self, node: int) -> None:
        self.target.resume(node)

    def kill(self, *nodes: int) -> None:
        self.target.kill(*nodes)

    def start(self, *nodes: int) -> None:
        self.target.bring_up(*nodes)

    def modes(self) -> dict[int, str]:
        """`leader` or `follower` for each broker that answers."""
        found: dict[int, str] = {}
        for node in self.target.awake:
            try:
                with RawClient(self.address(node)) as client:
                    client.send_raw(b"srvr")
                    lines = client.read_all().decode().splitlines()
            except OSError:
                continue
            for line in lines:
                if line.startswith("Mode: "):
                    found[node] = line.removeprefix("Mode: ")
        return found

    def leader(self) -> int:
        """The leader, as soon as there is exactly one."""

        def look() -> list[int]:
            leaders = [node for node, mode in self.modes().items() if mode == "leader"]
            return leaders if len(leaders) == 1 else []

        return eventually(look)[0]

    def wait_until_all_vote(self) -> None:
        """Until a broker has joined the coordination group, it lacks the newest commands."""
        eventually(lambda: sorted(self.modes().values()) == ["follower", "follower", "leader"])
