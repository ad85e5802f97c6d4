"""The result of one check of a `doctor` command."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One result. `area` groups findings on the screen; `fix` is set unless `status` is ok."""

    area: str
    status: Status
    text: str
    fix: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        return asdict(self)
