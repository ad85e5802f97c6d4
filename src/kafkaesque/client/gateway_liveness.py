"""Which gateways are alive, by their ephemeral nodes. Users of a dead gateway are not connected."""

from __future__ import annotations

from collections.abc import Sequence

from kafkaesque.client.ports import LogUnavailable
from kafkaesque.events.gateway import GATEWAYS_NODE
from kafkaesque.service.coordination import CoordinationSession, CoordinationSessionError

SESSION_SECONDS = 6.0


class GatewayLiveness:
    """Watches the gateways' nodes at `hosts`. Without a coordination service (`hosts` is empty), `names`
    stays None and every gateway counts as alive."""

    def __init__(self, hosts: str, client_name: str) -> None:
        self._hosts = hosts
        self._client_name = client_name
        self._session: CoordinationSession | None = None
        self.names: frozenset[str] | None = None

    def is_alive(self, gateway: str) -> bool:
        return self.names is None or gateway in self.names

    async def start(self) -> None:
        """Raises LogUnavailable if ZooKeeper does not answer: presence would be silently wrong."""
        if not self._hosts:
            return
        try:
            self._session = await CoordinationSession.open(
                self._hosts, session_seconds=SESSION_SECONDS, name=self._client_name
            )
            await self._session.ensure_path(GATEWAYS_NODE)
            await self._session.watch_children(GATEWAYS_NODE, self._changed)
        except CoordinationSessionError as error:
            await self.stop()
            raise LogUnavailable(str(error)) from None

    def _changed(self, children: Sequence[str]) -> None:
        self.names = frozenset(children)

    async def stop(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
