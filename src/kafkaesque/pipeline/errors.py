"""Errors that a user of the pipeline can cause or fix. Broken invariants use `model.errors.check`."""

from __future__ import annotations


class PipelineError(Exception):
    """The operation failed; `fix`, if given, is what to do about it."""

    def __init__(self, message: str, fix: str | None = None) -> None:
        super().__init__(message if fix is None else f"{message} ({fix})")
        self.message = message
        self.fix = fix


class JavaMissing(PipelineError):
    """There is no Java that Spark can run on."""


class SparkMissing(PipelineError):
    """pyspark, or a package that it needs, is not installed."""


class JarsUnavailable(PipelineError):
    """The jars of Spark's Kafka connector are missing, cannot be downloaded, or have a wrong checksum."""


class InvalidOption(PipelineError):
    """An option is unknown, contradicts another, or has an invalid value."""


class KafkaUnreachable(PipelineError):
    """No broker answered before the deadline."""


class KafkaRefused(PipelineError):
    """A broker answered with an error that is not retriable."""


class CannotListen(PipelineError):
    """The address of the status pages cannot be used."""


class DataLoss(PipelineError):
    """Records that should have been read are gone, and `failOnDataLoss` is set."""


class CheckpointInUse(PipelineError):
    """Another process runs a query on this checkpoint."""


class CheckpointLost(PipelineError):
    """A table has batches of this query from another checkpoint, or the checkpoint is incomplete."""


class TableRefused(PipelineError):
    """A table cannot take these rows: its schema or its partition columns differ."""
