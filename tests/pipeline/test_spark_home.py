from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from kafkaesque.pipeline.session import unzipped_home

needs_spark = pytest.mark.skipif(
    find_spec("pyspark") is None,
    reason="pyspark is missing: make setup, or pip install kafkaesque-platform[spark]",
)


@needs_spark
def test_home_can_start_spark_and_has_no_zipped_python(tmp_path: Path) -> None:
    home = unzipped_home(tmp_path / "cache")
    assert home is not None
    assert (home / "bin" / "spark-submit").is_file()
    assert list((home / "jars").glob("spark-core*.jar"))
    assert not (home / "python").exists()
    assert unzipped_home(tmp_path / "cache") == home


@needs_spark
def test_home_with_wrong_links_is_recreated(tmp_path: Path) -> None:
    home = unzipped_home(tmp_path)
    assert home is not None
    (home / "jars").unlink()
    (home / "jars").symlink_to(tmp_path)
    assert unzipped_home(tmp_path) == home
    assert list((home / "jars").glob("spark-core*.jar"))


@needs_spark
def test_several_processes_create_one_home(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from kafkaesque.pipeline.session import unzipped_home\n"
        f"print(unzipped_home(Path({str(tmp_path)!r})))"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    printed = {process.communicate()[0].strip() for process in started}
    assert printed == {str(unzipped_home(tmp_path))}
    assert [path.name for path in tmp_path.iterdir()] == [Path(printed.pop()).name]
