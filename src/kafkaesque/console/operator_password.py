"""The operator's password: from a file, from the environment, or random and kept on disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from pathlib import Path

PASSWORD_VARIABLE = "KAFKAESQUE_CONSOLE_PASSWORD"  # noqa: S105  a name, not a password


def password_path(data: Path) -> Path:
    """Where a console with the data directory `data` keeps a random password."""
    return data / "operator-password"


def read_password(data: Path, file: Path | None, environment: Mapping[str, str]) -> str:
    """The password from the file or the environment, or a random one that is stored in `data`.

    Raises ValueError if it is empty.
    """
    if file is not None:
        source, text = str(file), file.read_text().strip()
    elif PASSWORD_VARIABLE in environment:
        source, text = PASSWORD_VARIABLE, environment[PASSWORD_VARIABLE].strip()
    else:
        path = password_path(data)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as made:
                made.write(secrets.token_urlsafe(18) + "\n")
        source, text = str(path), path.read_text().strip()
    if not text:
        raise ValueError(f"The operator's password in {source} is empty: set one.")
    return text
