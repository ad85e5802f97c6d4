from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from kafkaesque.pipeline import jars
from kafkaesque.pipeline.errors import JarsUnavailable
from kafkaesque.pipeline.jars import Jar


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Maven repository of files with two small jars, locked as release 9.9."""
    root = tmp_path / "repository"
    locked = []
    for name in ("one", "two"):
        data = f"jar {name}".encode()
        jar = Jar("org.example", name, "1.0", hashlib.sha512(data).hexdigest())
        path = root / jar.path
        path.parent.mkdir(parents=True)
        path.write_bytes(data)
        locked.append(jar)
    monkeypatch.setattr(jars, "LOCK", {"9.9": tuple(locked)})
    monkeypatch.setattr("shutil.which", lambda _name: None)
    return root


def test_jars_are_fetched_once_and_then_found(
    repository: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(JarsUnavailable, match=r"one-1\.0\.jar is not on this machine"):
        jars.find("9.9", environment)
    notes: list[str] = []
    paths = jars.fetch("9.9", environment, repository=repository.as_uri(), notify=notes.append)
    assert notes == ["fetching org.example:one:1.0", "fetching org.example:two:1.0"]
    assert jars.find("9.9", environment) == paths
    assert jars.fetch("9.9", environment, repository="file:///gone") == paths


def test_jar_with_a_wrong_checksum_is_rejected_and_not_kept(
    repository: Path, environment: dict[str, str]
) -> None:
    (repository / "org/example/two/1.0/two-1.0.jar").write_bytes(b"evil")
    with pytest.raises(JarsUnavailable, match="SHA-512 of"):
        jars.fetch("9.9", environment, repository=repository.as_uri())
    kept = list(Path(environment["XDG_CACHE_HOME"]).rglob("*two*"))
    assert kept == []


def test_jar_damaged_in_the_cache_is_rejected(
    repository: Path, environment: dict[str, str]
) -> None:
    paths = jars.fetch("9.9", environment, repository=repository.as_uri())
    paths[0].write_bytes(b"cut")
    with pytest.raises(JarsUnavailable, match="remove the file"):
        jars.find("9.9", environment)


def test_named_directory_comes_before_the_cache(
    repository: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    paths = jars.fetch("9.9", environment, repository=repository.as_uri())
    own = tmp_path / "own"
    own.mkdir()
    for path in paths:
        path.rename(own / path.name)
    assert jars.find("9.9", {**environment, jars.JARS_VARIABLE: str(own)})[0].parent == own


def test_unreachable_repository_is_one_line_with_alternatives(
    repository: Path, environment: dict[str, str]
) -> None:
    with pytest.raises(JarsUnavailable) as caught:
        jars.fetch("9.9", environment, repository="file:///nowhere")
    assert "\n" not in str(caught.value)
    assert "KAFKAESQUE_MAVEN_REPO" in str(caught.value)


def test_version_without_a_lock_names_the_supported_ones() -> None:
    with pytest.raises(JarsUnavailable, match=r"supported versions: 4\.2\.0"):
        jars.locked("3.5.0")
