"""Single chat requests for scripts: `kafkaesque chat send` and `chat list`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from kafkaesque.cli.failures import CannotConnect, CommandFailure
from kafkaesque.edge.client import ClientClosed, EdgeClient, Happening, RequestFailed
from kafkaesque.edge.client_state import Credentials


def send_once(
    gateways: Sequence[str], credentials: Credentials, to: str, text: str, timeout_s: float
) -> dict[str, Any]:
    """Returns the result once the message is in the recipient's inbox."""
    return _run(_send(gateways, credentials, to, text), timeout_s)


def list_once(
    gateways: Sequence[str], credentials: Credentials, pattern: str, timeout_s: float
) -> dict[str, Any]:
    return _run(_list(gateways, credentials, pattern), timeout_s)


def _run(work: Any, timeout_s: float) -> dict[str, Any]:
    async def within() -> dict[str, Any]:
        async with asyncio.timeout(timeout_s):
            answer: dict[str, Any] = await work
            return answer

    try:
        return asyncio.run(within())
    except RequestFailed as failed:
        raise CommandFailure(str(failed)) from None
    except ClientClosed as closed:
        raise CannotConnect(str(closed)) from None
    except TimeoutError:
        raise CannotConnect(
            f"no answer within {timeout_s:g} s", "check that a gateway runs: `kafkaesque status`"
        ) from None


async def _send(
    gateways: Sequence[str], credentials: Credentials, to: str, text: str
) -> dict[str, Any]:
    async with EdgeClient(gateways, credentials) as client:
        op, body = "message.send", {"to": to, "text": text}
        if to.startswith("#"):
            op, body = "room.post", {"room": to[1:], "text": text}
        command_id = await client.send(op, body)
        async for event in client.events():
            if isinstance(event, Happening) and event.re == command_id:
                result: dict[str, Any] = event.body
                if not result["ok"]:
                    raise RequestFailed(result["code"], result["message"])
                return result
        raise ClientClosed("the gateway closed the session before the result", 0)


async def _list(gateways: Sequence[str], credentials: Credentials, pattern: str) -> dict[str, Any]:
    """Reads all pages of the list."""
    accounts: list[dict[str, Any]] = []
    async with EdgeClient(gateways, credentials) as client:
        while True:
            after = accounts[-1]["name"] if accounts else ""
            page = await client.ask(
                "account.list", {"pattern": pattern, "after": after, "limit": 200}
            )
            accounts += page["accounts"]
            if not page["more"]:
                return {"accounts": accounts}
