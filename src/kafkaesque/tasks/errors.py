"""What a task, its caller and its policies may raise."""

from __future__ import annotations


class TaskError(Exception):
    """Base of all that tasks raise on purpose."""


class TaskRefused(TaskError):
    """A call that cannot be sent: wrong arguments, an unknown task, a time that makes no sense."""


class Reject(TaskError):
    """Raised by a task: trying again would not help, give this call up now."""


class RetryLater(TaskError):
    """Raised by a task: try again after `delay_s`, which counts as an attempt."""

    def __init__(self, delay_s: float, text: str = "asked to be tried later") -> None:
        super().__init__(text)
        self.delay_s = delay_s


class TimeLimitExceeded(TaskError):
    """The call ran longer than its task permits."""


class ResultUnknown(TaskError):
    """No result came in time. The call may still be waiting, running, or long done."""


class TaskFailed(TaskError):
    """The call whose result was asked for was given up; the text says why."""
