"""The settings of the chat's jobs. The command line reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kafkaesque.model.setting import Setting, SettingType, setting, settings_of, typed_settings

INT, STRING = SettingType.INT, SettingType.STRING


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """Settings of the jobs: the destinations of notifications and mails."""

    webhook_url: str = setting(
        "webhook.url", STRING, "",
        "Notifications for users who are not connected are POSTed here as JSON; empty: not sent.",
        ours=True,
    )  # fmt: skip
    unread_after_ms: int = setting(
        "unread.after.ms", SettingType.LONG, 24 * 3_600_000,
        "A message that stays unread for this long is mailed.", at_least=1, ours=True,
    )  # fmt: skip
    mail_host: str = setting(
        "mail.host", STRING, "127.0.0.1", "The SMTP relay; empty: no mails are sent.", ours=True
    )
    mail_port: int = setting(
        "mail.port", INT, 1025, "Its port (`tasks mail-catcher` listens on 1025).", at_least=1,
        at_most=65535, ours=True,
    )  # fmt: skip
    mail_tls: str = setting(
        "mail.tls", STRING, "starttls",
        "`starttls` requires STARTTLS, `tls` is TLS from the first byte, `none` is plain text.",
        choices=("starttls", "tls", "none"), ours=True,
    )  # fmt: skip
    mail_ca_file: str = setting(
        "mail.ca.file", STRING, "", "PEM file of the trusted CA; empty: the system's.", ours=True
    )
    mail_username: str = setting(
        "mail.username", STRING, "", "For SMTP AUTH; the password is KAFKAESQUE_MAIL_PASSWORD.",
        ours=True,
    )  # fmt: skip
    mail_from: str = setting(
        "mail.from", STRING, "Chat <chat@localhost>", "The sender of the mails.", ours=True
    )
    mail_address: str = setting(
        "mail.address", STRING, "{user}@localhost", "The address of a user; {user} is replaced by the name.",
        ours=True,
    )  # fmt: skip
    mail_templates: str = setting(
        "mail.templates", STRING, "",
        "Directory with unread.subject.txt, unread.txt and unread.html; empty: the built-in ones.", ours=True,
    )  # fmt: skip


JOBS_SETTINGS: Mapping[str, Setting] = settings_of(JobsConfig)


def jobs_config(values: Mapping[str, str]) -> JobsConfig:
    """Raises InvalidConfig, which names the unknown or invalid setting."""
    return typed_settings(JobsConfig, values)
