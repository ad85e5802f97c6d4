"""Exceptions that tasks, callers and middleware raise."""

from __future__ import annotations


class TaskError(Exception):
    """Base class of these exceptions."""


class TaskRefused(TaskError):
    """The call cannot be sent: wrong arguments, an unknown task, an impossible time."""


class Reject(TaskError):
    """Raised by a task: a retry would not help, so the call is given up at once."""


class RetryLater(TaskError):
    """Raised by a task: retry after `delay_s`. This counts as an attempt."""

    def __init__(self, delay_s: float, text: str = "the task asked for a retry") -> None:
        super().__init__(text)
        self.delay_s = delay_s


class TimeLimitExceeded(TaskError):
    """The call ran longer than the time limit of its task."""


class ResultUnknown(TaskError):
    """No result arrived in time. The call may still be waiting, be running, or be done."""


class TaskFailed(TaskError):
    """The call was given up; the text gives the reason."""
