"""When a failed call is retried, and where it waits until then. Randomness is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from kafkaesque.events.tasks import TIERS_MS


@dataclass(frozen=True, slots=True)
class Retry:
    """Exponential backoff: `first_s`, then `factor` times longer after each failure, up to `most_s`."""

    attempts: int = 5
    """The maximum number of attempts, the first included."""
    first_s: float = 1.0
    factor: float = 4.0
    most_s: float = 3600.0
    jitter: bool = True
    """Shorten each delay by up to half, so that calls that failed together are not retried together."""
    on: tuple[type[BaseException], ...] = (Exception,)
    never_on: tuple[type[BaseException], ...] = ()
    ordered: bool = False
    """Hold back later calls of the same key until this one succeeds or is given up."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError("attempts must be at least 1")
        if self.first_s < 0 or self.factor < 1 or self.most_s < self.first_s:
            raise ValueError("delays must not shrink: 0 <= first_s <= most_s, factor >= 1")

    def covers(self, error: BaseException) -> bool:
        return isinstance(error, self.on) and not isinstance(error, self.never_on)

    def delay_s(self, attempt: int, chance: float) -> float:
        """The delay after failed attempt 1, 2, ...; `chance` is drawn from [0, 1)."""
        # The exponent is bounded: a float overflows after a thousand doublings.
        full_s = min(self.most_s, self.first_s * self.factor ** min(attempt - 1, 64))
        return full_s * (1 - chance / 2) if self.jitter else full_s


NO_RETRY = Retry(attempts=1)


def tier_for(delay_ms: float) -> str | None:
    """The smallest retry tier for this delay; None if the delay needs a timer."""
    return next((tier for tier, tier_ms in TIERS_MS.items() if delay_ms <= tier_ms), None)


def waits_until_ms(tier: str, due_ms: int, received_ms: int) -> int:
    """When a record of a retry topic is due, by the worker's own clock.

    No record waits longer than its tier after it was read. Otherwise a record written by a machine whose
    clock ran ahead would wait for as long as that clock was wrong.
    """
    return min(due_ms, received_ms + TIERS_MS.get(tier, 0))
