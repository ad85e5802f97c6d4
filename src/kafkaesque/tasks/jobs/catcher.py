"""An SMTP server for tests and demos: it keeps every mail, as .eml files in a directory."""

from __future__ import annotations

import asyncio
import email
import email.policy
import itertools
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Self

from aiosmtpd.smtp import SMTP, Envelope, Session

KEPT_MAX = 10_000
MAIL_SIZE_BYTES_MAX = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Caught:
    """One received mail."""

    sender: str
    recipients: tuple[str, ...]
    message: EmailMessage
    was_encrypted: bool


class MailCatcher:
    """Listens between `start` and `stop`. With a TLS context it offers STARTTLS."""

    def __init__(
        self,
        directory: Path | None = None,
        context: ssl.SSLContext | None = None,
        on_mail: Callable[[Caught], None] = lambda caught: None,
    ) -> None:
        self._directory = directory
        self._context = context
        self._on_mail = on_mail
        self._numbers = itertools.count(1)
        self._server: asyncio.Server | None = None
        self.caught: list[Caught] = []
        self.refusal: str | None = None
        """If set, the reply to every mail, for example `451 later`."""

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> str:
        loop = asyncio.get_running_loop()
        if self._directory is not None:
            self._directory.mkdir(parents=True, exist_ok=True)
        self._server = await loop.create_server(self._protocol, host, port)
        bound_host, bound_port = self._server.sockets[0].getsockname()[:2]
        return f"{bound_host}:{bound_port}"

    def _protocol(self) -> SMTP:
        return SMTP(
            self,
            tls_context=self._context,
            data_size_limit=MAIL_SIZE_BYTES_MAX,
            enable_SMTPUTF8=True,
            loop=asyncio.get_running_loop(),
        )

    async def handle_DATA(self, _server: SMTP, session: Session, envelope: Envelope) -> str:
        if self.refusal is not None:
            return self.refusal
        data = envelope.content or b""
        octets = data.encode() if isinstance(data, str) else data
        message: Any = email.message_from_bytes(octets, policy=email.policy.default)
        recipients = tuple(envelope.rcpt_tos)
        caught = Caught(envelope.mail_from or "", recipients, message, session.ssl is not None)
        self.caught.append(caught)
        del self.caught[:-KEPT_MAX]
        if self._directory is not None:
            name = f"{time.time_ns() // 1_000_000}-{next(self._numbers)}.eml"
            await asyncio.to_thread((self._directory / name).write_bytes, octets)
        self._on_mail(caught)
        return "250 caught"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()
