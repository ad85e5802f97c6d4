"""Client of the control API of a running `kafkaesque up` (see `control_server`).

Needs no HTTP library: `kafkaesque status` and `ctl` work without any extra.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import quote

FILE_NAME = "control.json"
_TIMEOUT_S = 5


class ActionRefused(Exception):
    """`up` refused the action; the text says why."""


def control_file(data: Path) -> Path:
    """Where `up` keeps the API's address and token."""
    return data / FILE_NAME


def running_processes(data: Path) -> list[dict[str, Any]] | None:
    """Processes of the `up` that runs with this data directory; None if there is none."""
    try:
        processes: list[dict[str, Any]] = json.loads(_call(data, "GET", "/processes"))["processes"]
    except (OSError, ValueError, KeyError):
        return None
    return processes


def act(data: Path, name: str, action: str) -> None:
    """kill, pause, resume or restart a process.

    Raises ActionRefused; OSError, ValueError or KeyError if no `up` answers.
    """
    try:
        _call(data, "POST", f"/processes/{quote(name, safe='')}/{action}")
    except urllib.error.HTTPError as error:
        with error:
            raise ActionRefused(error.read().decode(errors="replace").strip()) from None


def _call(data: Path, method: str, path: str) -> bytes:
    control = json.loads(control_file(data).read_text())
    request = urllib.request.Request(  # noqa: S310 - our own file, our own loopback address
        f"{control['url']}{path}",
        method=method,
        headers={"Authorization": f"Bearer {control['token']}"},
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:  # noqa: S310
        body: bytes = answer.read()
        return body
