"""Sends mails from templates, over SMTP with TLS."""

from __future__ import annotations

import html
import re
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime, parseaddr
from pathlib import Path
from string import Template
from typing import Self

import aiosmtplib

from kafkaesque.tasks.errors import Reject
from kafkaesque.tasks.jobs.config import JobsConfig

TEMPLATES = Path(__file__).parent / "templates"
SEND_SECONDS_MAX = 30.0
ADDRESS_LENGTH_MAX = 254
"""RFC 5321, section 4.5.3.1.3, without the angle brackets."""
_PERMANENT = range(500, 600)
_ATOM = r"[^\s()<>\[\]:;,@\\\"%!.]+"
_ADDRESS = re.compile(rf"{_ATOM}(\.{_ATOM})*@{_ATOM}(\.{_ATOM})*")


@dataclass(frozen=True, slots=True)
class Unread:
    """The content of a mail about an unread message. The text of the message is not included."""

    message_id: str
    sender: str
    recipient: str
    sent_ms: int


@dataclass(frozen=True, slots=True)
class MailTemplates:
    """Templates with $sender, $recipient and $sent_at; values are escaped in the HTML."""

    subject: Template
    text: Template
    page: Template

    @classmethod
    def read(cls, directory: Path) -> Self:
        """Raises ValueError or OSError at start-up if the templates are unusable."""
        templates = cls(
            *(
                Template((directory / name).read_text("utf-8"))
                for name in ("unread.subject.txt", "unread.txt", "unread.html")
            )
        )
        known = {"sender", "recipient", "sent_at"}
        for template in (templates.subject, templates.text, templates.page):
            if not template.is_valid() or not set(template.get_identifiers()) <= known:
                raise ValueError(f"a template in {directory} uses more than {sorted(known)}")
        return templates

    def compose(self, unread: Unread, config: JobsConfig) -> EmailMessage:
        moment = datetime.fromtimestamp(unread.sent_ms / 1000, tz=UTC)
        values = {
            "sender": unread.sender,
            "recipient": unread.recipient,
            "sent_at": moment.strftime("%d %B %Y at %H:%M UTC"),
        }
        message = EmailMessage()
        # A header cannot contain a line break, but a name may.
        message["Subject"] = " ".join(self.subject.substitute(values).split())
        message["From"] = config.mail_from
        message["To"] = address_of(unread.recipient, config)
        message["Date"] = format_datetime(moment)
        # The same for every attempt, so that mail servers recognise a duplicate.
        domain = parseaddr(config.mail_from)[1].rpartition("@")[2] or "localhost"
        message["Message-ID"] = f"<unread.{_safe(unread.message_id)}@{domain}>"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(self.text.substitute(values))
        escaped = {name: html.escape(value) for name, value in values.items()}
        message.add_alternative(self.page.substitute(escaped), subtype="html")
        return message


def address_of(user: str, config: JobsConfig) -> str:
    """The address of `user`. Raises ValueError unless the name makes exactly one plain address.

    Users choose their names, so a name must not add a recipient or a route of its own: commas,
    spaces, quotes, comments and brackets are refused, and so are % and !, which some relays rewrite
    to another domain (`victim%evil.example`).
    """
    address = config.mail_address.format(user=user)
    if len(address) > ADDRESS_LENGTH_MAX:
        raise ValueError(f"an address has at most {ADDRESS_LENGTH_MAX} characters")
    if not address.isprintable() or not _ADDRESS.fullmatch(address):
        raise ValueError(f"{address!r} is not exactly one plain address (NAME@DOMAIN)")
    return address


def _check_address_setting(config: JobsConfig) -> None:
    """Raises ValueError if no name makes an address."""
    for sample in ("user", "user@localhost"):
        try:
            address_of(sample, config)
        except (ValueError, KeyError, IndexError):
            continue
        return
    raise ValueError(
        f"mail.address is {config.mail_address!r}: write one plain address with {{user}} in it, "
        "such as {user}@example.org"
    )


class Mailer:
    """Sends mails through the configured relay."""

    def __init__(self, config: JobsConfig, password: str = "") -> None:
        self._config = config
        self._password = password
        _check_address_setting(config)
        directory = Path(config.mail_templates) if config.mail_templates else TEMPLATES
        self._templates = MailTemplates.read(directory)
        self._context = ssl.create_default_context(cafile=config.mail_ca_file or None)
        self.sent = 0

    async def send_unread(self, unread: Unread) -> None:
        """Raises Reject if the recipient has no valid address or the relay refuses the mail
        permanently; other errors are retried."""
        config = self._config
        try:
            message = self._templates.compose(unread, config)
        except (ValueError, KeyError, IndexError) as error:
            raise Reject(f"no mail can be addressed to {unread.recipient!r}: {error}") from None
        secured = config.mail_tls != "none"
        try:
            await aiosmtplib.send(
                message,
                recipients=[message["To"]],
                hostname=config.mail_host,
                port=config.mail_port,
                use_tls=config.mail_tls == "tls",
                start_tls=config.mail_tls == "starttls",
                tls_context=self._context if secured else None,
                username=config.mail_username or None,
                password=self._password or None,
                timeout=SEND_SECONDS_MAX,
            )
        except aiosmtplib.SMTPRecipientsRefused as error:
            if all(one.code in _PERMANENT for one in error.recipients):
                raise Reject(str(error)) from error
            raise
        except aiosmtplib.SMTPResponseException as error:
            if error.code in _PERMANENT:
                raise Reject(str(error)) from error
            raise
        self.sent += 1


def _safe(text: str) -> str:
    return "".join(one if one.isalnum() or one in "-_." else "-" for one in text)
