"""A client of a console's JSON API."""

from __future__ import annotations

import contextlib
import http.client
import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kafkaesque.console.operator_password import password_path
from kafkaesque.service.process import read_facts

CONSOLE_DEFAULT = "http://127.0.0.1:8080"
TIMEOUT_S = 10


class ConsoleRefused(Exception):
    """The console answered with an error."""


class ConsoleUnavailable(Exception):
    """No console answered."""


class ConsoleClient:
    """The API of one console, found by its URL or by the data directory of the `up` that runs it.

    Without `password`, uses the one that the console keeps in `data`. Raises ValueError for a URL that is
    not http or https.
    """

    def __init__(self, url: str | None, data: Path, password: str = "") -> None:
        home = data / "console"
        address = read_facts(home / "console.json").get("http")
        self.url = (url or (f"http://{address}" if address else CONSOLE_DEFAULT)).rstrip("/")
        if not self.url.startswith(("http://", "https://")):
            raise ValueError(f"'{self.url}' is not the URL of a console")
        self._password = password
        # The kept password is for the console of `data` only, not for any other URL.
        self._password_file = None if url else password_path(home)

    def get(self, path: str, **query: str) -> Any:
        """The document at `path`. Raises ConsoleRefused and ConsoleUnavailable."""
        request = urllib.request.Request(  # noqa: S310 - http, checked by the constructor
            f"{self.url}{path}?{urlencode(query)}", headers=self.headers()
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ConsoleRefused(f"{self.url}{path}: {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ConsoleUnavailable(f"no console answered at {self.url}: {error}") from None

    def headers(self) -> dict[str, str]:
        """A private console requires the operator's password for reading too."""
        password = self._password
        if not password and self._password_file is not None:
            with contextlib.suppress(OSError):
                password = self._password_file.read_text().strip()
        return {"Authorization": f"Bearer {password}"} if password else {}
