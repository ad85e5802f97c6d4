"""What `doctor` says: one finding an examined thing. Values only."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Status = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """`area` groups the screen; `fix` is there whenever `status` is not ok."""

    area: str
    status: Status
    text: str
    fix: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        return asdict(self)
