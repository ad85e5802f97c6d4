"""A session with the coordination service, ours or an Apache ZooKeeper, over kazoo.

kazoo blocks and calls back from threads of its own; these functions run it beside an event loop. It
is imported late, because only processes that use coordination need it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kazoo.client import KazooClient

CONNECT_SECONDS_MAX = 15.0


class CoordinationUnavailable(Exception):
    """No server answered in time, or it refused the session."""


async def open_session(
    hosts: str,
    *,
    session_seconds: float,
    name: str,
    on_state: Callable[[str], None] | None = None,
) -> KazooClient:
    """Connect to one of `hosts` (HOST:PORT,...). Raises CoordinationUnavailable.

    `name` appears in kazoo's log lines. `on_state` is called from kazoo's threads.
    """
    from kazoo.client import KazooClient
    from kazoo.exceptions import KazooException
    from kazoo.handlers.threading import KazooTimeoutError

    client = KazooClient(
        hosts=hosts, timeout=session_seconds, logger=logging.getLogger(f"kazoo.{name}")
    )
    if on_state is not None:
        client.add_listener(on_state)
    try:
        await asyncio.to_thread(client.start, CONNECT_SECONDS_MAX)
    except KazooTimeoutError:
        await close_session(client)
        raise CoordinationUnavailable(f"no ZooKeeper at {hosts}") from None
    except KazooException as error:
        await close_session(client)
        raise CoordinationUnavailable(f"ZooKeeper at {hosts}: {error!r}") from None
    return client


async def close_session(client: KazooClient) -> None:
    """End the session: its ephemeral nodes are deleted."""
    await asyncio.to_thread(client.stop)
    await asyncio.to_thread(client.close)
