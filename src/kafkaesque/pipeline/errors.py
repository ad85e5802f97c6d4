"""What a user of the pipeline can cause or mend. A broken invariant is `model.errors.check`'s."""

from __future__ import annotations


class PipelineError(Exception):
    """The operation did not happen; `fix`, where there is one, says what to do about it."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message if fix is None else f"{message} ({fix})")
        self.message = message
        self.fix = fix


class JavaMissing(PipelineError):
    """No Java that Spark can run on."""


class SparkMissing(PipelineError):
    """pyspark, or a package that it needs, is not installed."""


class JarsUnavailable(PipelineError):
    """Spark's Kafka connector cannot be had: not found, not downloadable, or not what it must be."""


class InvalidOption(PipelineError):
    """An option that does not exist, contradicts another, or has a value that cannot be."""


class KafkaUnreachable(PipelineError):
    """No broker answered within the time that was given."""


class KafkaRefused(PipelineError):
    """A broker answered with an error that trying again does not mend."""


class DataLoss(PipelineError):
    """Records that were to be read are gone, and `failOnDataLoss` forbids to go on without."""


class CheckpointInUse(PipelineError):
    """Another process runs a query on this checkpoint."""


class CheckpointLost(PipelineError):
    """A table knows batches of a query whose checkpoint is not this one."""


class TableRefused(PipelineError):
    """A table cannot take these rows: another schema, or other partition columns."""
