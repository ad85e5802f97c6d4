"""Single chat requests over a gateway, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kafkaesque.edge.client import ClientClosed, EdgeClient, Happening, RequestFailed
from kafkaesque.edge.client_state import Credentials

ACCOUNTS_PER_PAGE = 200


async def send_message(
    gateways: Sequence[str], credentials: Credentials, to: str, text: str
) -> dict[str, Any]:
    """Sends to an account or a #room; returns once the message is in the recipient's inbox.

    Raises RequestFailed and ClientClosed.
    """
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


async def list_accounts(
    gateways: Sequence[str], credentials: Credentials, pattern: str
) -> list[dict[str, Any]]:
    """All accounts that match a pattern with * and ?. Raises RequestFailed and ClientClosed."""
    accounts: list[dict[str, Any]] = []
    async with EdgeClient(gateways, credentials) as client:
        while True:
            after = accounts[-1]["name"] if accounts else ""
            page = await client.ask(
                "account.list", {"pattern": pattern, "after": after, "limit": ACCOUNTS_PER_PAGE}
            )
            accounts += page["accounts"]
            if not page["more"]:
                return accounts
