from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafkaesque.pipeline.spark_home import slim_home

needs_spark = pytest.mark.skipif(
    find_spec("pyspark") is None,
    reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]",
)


@needs_spark
def test_home_has_what_starts_spark_and_no_zipped_python(tmp_path: Path) -> None:
    home = slim_home(tmp_path / "cache")
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()
    assert slim_home(tmp_path / "cache") == home


@needs_spark
def test_home_that_leads_elsewhere_is_made_anew(tmp_path: Path) -> None:
    home = slim_home(tmp_path)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)
    assert slim_home(tmp_path) == home
    assert list((home / "jars").glob("spark-core*.jar"))


@needs_spark
def test_homes_made_by_several_processes_at_once_are_one(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from kafkaesque.pipeline.spark_home import slim_home\n"
        f"print(slim_home(Path({str(tmp_path)!r})))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {process.communicate()[0].strip() for process in started}
    assert told == {str(slim_home(tmp_path))}
    assert [path.name for path in tmp_path.iterdir()] == [Path(told.pop()).name]
