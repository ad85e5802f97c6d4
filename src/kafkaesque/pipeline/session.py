"""Starts the Spark session that the pipeline uses. Every Spark setting has its reason next to it.

`java.py` finds Java, `jars.py` the connector's jars.
"""

from __future__ import annotations

import os
import shutil
import sys
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkaesque.pipeline import jars
from kafkaesque.pipeline.errors import JarsUnavailable, SparkMissing
from kafkaesque.pipeline.java import find_java
from kafkaesque.pipeline.paths import cache_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("pyspark", "pyarrow", "deltalake", "google.protobuf")
MASTER_DEFAULT = "local[*]"

# Spark's default manager, based on FileContext, forks `readlink` for each file.
_LOCAL_CHECKPOINTS = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_WORKER_MEMORY = {
    # A reader allocates and frees the same few megabytes for each fetch. With glibc's defaults they
    # return to the system each time, and faulting them in again is half of the reader's work.
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(256 << 20),
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
}
_SHORT_RUN_JAVA = " -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_LOGGING = Path(__file__).with_name("log4j2.properties")
_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_LINKED = ("bin", "jars", "sbin")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings with which Spark starts."""

    scratch: Path
    """Directory of shuffle and spill files. Cleaned at the start, because kill -9 leaves files there."""
    master: str = MASTER_DEFAULT
    app_name: str = "kafkaesque"
    driver_memory: str = "1g"
    shuffle_partitions: int | None = None
    """Tasks of a shuffle; a stateful query keeps its number for ever. None means two per core, at
    most 8. Spark's default of 200 is for clusters with hundreds of cores."""
    with_jars: bool = True
    """Load Spark's own Kafka connector if its jars are on this machine."""
    local_checkpoints: bool = True
    """Checkpoints are on a local disk, which saves forks of `readlink` and `chmod` in each batch.
    Set to False for any other file system: its rename may need Spark's own manager."""
    is_brief: bool = False
    """The session runs for minutes at most. The JVM then uses only its fast compiler and its simplest
    garbage collector: cheaper to start, slower in a long run."""
    ui_port: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


def require_packages() -> None:
    """Raises SparkMissing unless all packages of the `[spark]` extra are importable."""
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
    """The version of the installed pyspark."""
    require_packages()
    import pyspark

    return str(pyspark.__version__)


def available_jars(environment: Mapping[str, str]) -> list[Path]:
    """The connector's jars; empty unless all of them are on this machine."""
    try:
        return jars.find(spark_version(), environment)
    except JarsUnavailable:
        return []


def start_session(
    settings: SessionSettings, environment: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts Spark in this process, or returns the session that is already running.

    Java, jars and the cache are found by `environment`, by default that of this process. Sets
    JAVA_HOME, PYSPARK_PYTHON and, if it is not set, SPARK_HOME in `os.environ`: the JVM that
    pyspark starts reads them there.
    """
    require_packages()
    known = os.environ if environment is None else environment
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    java = find_java(known, cache_directory(known))
    os.environ["JAVA_HOME"] = str(java.home)
    # Workers would otherwise run the first `python3` on the PATH, which lacks our packages.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    home = None if "SPARK_HOME" in os.environ else unzipped_home(cache_directory(known))
    if home is not None:
        os.environ["SPARK_HOME"] = str(home)
    _clean(settings.scratch)
    builder = SparkSession.builder.appName(settings.app_name).master(settings.master)
    found = available_jars(known) if settings.with_jars else []
    for name, value in configuration(settings, found).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if settings.local_checkpoints:
        _disable_crc_files(spark)
    return spark


def _disable_crc_files(spark: SparkSession) -> None:
    """Stops this JVM from writing a `.crc` file next to each file on a local disk.

    Without its native library, Hadoop forks `chmod` for each file it creates, `.crc` files included,
    and a micro-batch waits for the two files it creates. State has its own checksums (RocksDB's
    blocks, the entries of a zip); the JSON lines in `offsets` and `commits` then have none. Set on
    the object, because settings can only choose another class (RawLocalFileSystem), which RocksDB's
    state store cannot use.
    """
    context: Any = spark.sparkContext
    local = context._jvm.org.apache.hadoop.fs.FileSystem.getLocal(
        context._jsc.hadoopConfiguration()
    )
    local.setWriteChecksum(False)


def configuration(settings: SessionSettings, jar_paths: Sequence[Path]) -> dict[str, str]:
    """Spark's configuration, by Spark's names."""
    partitions = settings.shuffle_partitions or min(8, 2 * (os.cpu_count() or 1))
    chosen = {
        "spark.driver.memory": settings.driver_memory,
        "spark.local.dir": str(settings.scratch),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        # Unix sockets to Python workers save about 50 ms per micro-batch over TCP.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        **_WORKER_MEMORY,
        "spark.ui.enabled": "false" if settings.ui_port is None else "true",
        "spark.ui.showConsoleProgress": "false",
        # Spark searches Python errors for an interruption with a regex that recurses per character
        # (StreamExecution.PROXY_ERROR): a long traceback overflows the default stack.
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING} -Xss4m"
        + (_SHORT_RUN_JAVA if settings.is_brief else ""),
        # Stateful queries need batches without data to emit windows that the watermark has passed.
        "spark.sql.streaming.noDataMicroBatches.enabled": "true",
        # Client properties are options of a source, and options appear in query plans.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|jaas",
        # We keep our own progress feed; Spark need not keep a long history.
        "spark.sql.streaming.numRecentProgressUpdates": "20",
    }
    if settings.master.startswith(("local", "spark://127.0.0.1", "spark://localhost")):
        # Host names of laptops and containers often resolve to an unreachable address.
        chosen |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    if settings.local_checkpoints:
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = _LOCAL_CHECKPOINTS
    if settings.ui_port is not None:
        chosen["spark.ui.port"] = str(settings.ui_port)
    if jar_paths:
        chosen["spark.jars"] = ",".join(str(path) for path in jar_paths)
    return {**chosen, **settings.extra}


def _clean(scratch: Path) -> None:
    """Removes files of earlier sessions: block managers, Spark's unpacked jars, spill files."""
    if scratch.exists():
        for path in scratch.glob("*"):
            if path.is_dir() and path.name.startswith(("blockmgr-", "spark-", "rocksdb-")):
                shutil.rmtree(path, ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)


def unzipped_home(cache: Path) -> Path | None:
    """A SPARK_HOME under `cache` that links to pyspark's own but lacks its zipped Python.

    Spark puts `SPARK_HOME/python/lib/pyspark.zip` first on the path of each Python process it starts.
    A zip holds no compiled modules, so every start compiles pyspark again (1.5 s of CPU instead of
    0.5 s; a query starts five processes, and Spark gives up on one after ten seconds). Without the
    zip (PythonUtils.sparkPythonPath) the processes import the installed package.

    None if the installed pyspark contains no Spark.
    """
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        return None
    package = Path(spec.origin).resolve().parent
    if not (package / "bin" / "spark-submit").is_file() or not (package / "jars").is_dir():
        return None
    # One per installation: several environments may share a cache.
    home = cache / f"spark-home-{zlib.crc32(str(package).encode()):08x}"
    if not _links_to(home, package):
        _create_home(home, package)
    return home


def _links_to(home: Path, package: Path) -> bool:
    return all(
        (home / name).resolve() == package / name for name in _LINKED if (package / name).exists()
    )


def _create_home(home: Path, package: Path) -> None:
    """Created under another name and renamed: two processes may start their first session at once."""
    temporary = home.with_name(f".{home.name}.{os.getpid()}")
    temporary.mkdir(parents=True)
    for name in _LINKED:
        if (package / name).exists():
            (temporary / name).symlink_to(package / name)
    try:
        if home.exists() and not _links_to(home, package):
            shutil.rmtree(home)
        temporary.rename(home)
    except OSError:
        # Another process was first and has created the same links.
        shutil.rmtree(temporary, ignore_errors=True)
        if not _links_to(home, package):
            raise
