"""What came of one attempt, as values: the chain of policies decides, the worker carries out."""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from typing import Final

TEXT_LENGTH_MAX: Final = 1_000
TRACEBACK_LENGTH_MAX: Final = 8_000


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception as it is kept: bounded texts, no objects."""

    kind: str
    text: str
    trace: str = ""

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        kind = type(error).__qualname__
        if type(error).__module__ not in ("builtins", "__main__"):
            kind = f"{type(error).__module__}.{kind}"
        lines = "".join(traceback.format_exception(error))
        return cls(kind, str(error)[:TEXT_LENGTH_MAX], lines[-TRACEBACK_LENGTH_MAX:])

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}" if self.text else self.kind


@dataclass(frozen=True, slots=True)
class Done:
    """It ended well with `value`."""

    value: object = None


@dataclass(frozen=True, slots=True)
class Again:
    """It failed and is to be tried again after `delay_s`."""

    delay_s: float
    failure: Failure
    ordered: bool = False


@dataclass(frozen=True, slots=True)
class Dead:
    """It is given up; `reason` is one of a few words for counting and filtering."""

    reason: str
    failure: Failure


Outcome = Done | Again | Dead

UNREADABLE: Final = "unreadable"
UNKNOWN_TASK: Final = "unknown-task"
UNKNOWN_VERSION: Final = "unknown-version"
WRONG_ARGUMENTS: Final = "wrong-arguments"
EXPIRED: Final = "expired"
REJECTED: Final = "rejected"
EXHAUSTED: Final = "exhausted"
HELD_TOO_LONG: Final = "held-too-long"
REASONS: Final = (
    UNREADABLE, UNKNOWN_TASK, UNKNOWN_VERSION, WRONG_ARGUMENTS, EXPIRED, REJECTED, EXHAUSTED,
    HELD_TOO_LONG,
)  # fmt: skip
