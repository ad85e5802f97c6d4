"""One Spark session, set up for what the pipeline does. Every setting here has its reason beside it.

Lives here: how Spark is started. What it runs is `operate/`'s; where Java and jars come from is
`java.py`'s and `jars.py`'s.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaesque.pipeline import jars
from kafkaesque.pipeline.errors import JarsUnavailable, SparkMissing
from kafkaesque.pipeline.java import find_java
from kafkaesque.pipeline.places import cache_directory
from kafkaesque.pipeline.spark_home import slim_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "deltalake", "google.protobuf")
MASTER_DEFAULT = "local[*]"

# Spark's own choice, by FileContext, forks `readlink` for each file.
_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_WORKER_MEMORY = {
    # A reader allocates and frees the same few megabytes for each fetch. By glibc's defaults they
    # go back to the system each time, and faulting them in again is half of the reader's work.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
_BRIEF_JAVA = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How to start Spark."""

    scratch: Path
    """Shuffle and spill files; emptied at the start, because kill -9 leaves them behind."""
    master: str = MASTER_DEFAULT
    app_name: str = "kafkaesque"
    driver_memory: str = "1g"
    shuffle_partitions: int | None = None
    """Tasks of a shuffle, and for ever those of a stateful query; None takes two a core, at
    most 8. Spark's own default of 200 is for clusters of hundreds of cores."""
    with_jars: bool = True
    """Take Spark's own Kafka connector in if its jars are on this machine."""
    local_checkpoints: bool = True
    """Checkpoints lie on a local disk: saves forks of `readlink` and `chmod` in each
    batch. Off for any other file system, whose rename may need Spark's own manager."""
    is_brief: bool = False
    """It runs for minutes at most: the JVM compiles with its quick compiler only and collects garbage
    with its simplest collector, which makes a start cheaper and a long run slower."""
    ui_port: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


def require_packages() -> None:
    """SparkMissing, in one line, unless everything of the `[spark]` extra is importable."""
    missing = [name for name in PACKAGES if not _is_installed(name)]
    if missing:
        raise SparkMissing(
            f"the pipeline needs {', '.join(missing)}",
            "pip install kafkaesque-platform[spark]",
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def spark_version() -> str:
    """The release of the installed pyspark."""
    require_packages()
    import pyspark

    return str(pyspark.__version__)


def available_jars(environment: Mapping[str, str]) -> list[Path]:
    """The connector's jars, or none where they are not all here."""
    try:
        return jars.find(spark_version(), environment)
    except JarsUnavailable:
        return []


def start_session(
    settings: SessionSettings, environment: Mapping[str, str] | None = None
) -> SparkSession:
    """Start Spark in this process, or return the session that runs already.

    `environment` is this process's unless given; JAVA_HOME, PYSPARK_PYTHON and, unless somebody
    chose one, SPARK_HOME are set in it, for the JVM that pyspark starts reads them from there.
    """
    require_packages()
    known = os.environ if environment is None else environment
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java(known, cache_directory(known))
    os.environ["JAVA_HOME"] = str(java.home)
    # Workers would otherwise take the first `python3` of the PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = None if "SPARK_HOME" in os.environ else slim_home(cache_directory(known))
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    _sweep(settings.scratch)
    builder = SparkSession.builder.appName(settings.app_name).master(settings.master)
    found = available_jars(known) if settings.with_jars else []
    for name, value in configuration(settings, found).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if settings.local_checkpoints:
        _leave_out_sidecars(spark)
    return spark


def _leave_out_sidecars(spark: SparkSession) -> None:
    """No `.crc` file beside each file that this JVM writes on a local disk.

    Hadoop, without its native library, forks `chmod` for each file it makes, the sidecar too, and a
    micro-batch waits for the two files it makes. State has checksums of its own (RocksDB's blocks,
    the entries of a zip); the lines of JSON in `offsets` and `commits` then have none. By the
    object, because by the settings only another class can be chosen (RawLocalFileSystem), which
    RocksDB's state store cannot use.
    """
    context: Any = spark.sparkContext
    local = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        context._jsc.hadoopConfiguration()
    )
    local.setWriteChecksum(False)


def configuration(settings: SessionSettings, jar_paths: Sequence[Path]) -> dict[str, str]:
    """The settings of Spark, by its own names."""
    partitions = settings.shuffle_partitions or min(8, 2 * (os.cpu_count() or 1))
    chosen = {
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(settings.scratch),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        # A task's socket costs about 50 ms less in each micro-batch than over TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **_WORKER_MEMORY,
        "spark.ui.enabled": "false" if settings.ui_port is None else "true",
        "spark.ui.showConsoleProgress": "false",
        # Spark looks for an interruption in a Python error by a pattern that recurses for each
        # character (StreamExecution.PROXY_ERROR): a long traceback overflows the usual stack.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING} -Xss4m"
        + (_BRIEF_JAVA if settings.is_brief else ""),
        # A batch that found no data must not write two files and a state of every partition.
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        # Client properties are options of a source, and options stand in plans.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        # Our status is a feed of its own; Spark need not keep more of it.
        "spark.sql.streaming.numRecentProgressUpdates": "20",
    }
    if settings.master.startswith(("local", "spark://127.0.0.1", "spark://localhost")):
        # Host names of laptops and containers often resolve to an address that nothing reaches.
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.local_checkpoints:
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    if settings.ui_port is not None:
        chosen["spark.ui.port"] = str(settings.ui_port)
    if jar_paths:
        chosen["spark.jars"] = ",".join(str(path) for path in jar_paths)
    return {**chosen, **settings.extra}


def _sweep(scratch: Path) -> None:
    """Remove what sessions before left: block managers, Spark's unpacked jars, spill files."""
    if scratch.exists():
        for path in scratch.glob("*"):
            if path.is_dir() and path.name.startswith(("blockmgr-", "spark-", "rocksdb-")):
                shutil.rmtree(path, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
