"""Checks what the pipeline needs on this machine: Java, packages, jars, decoder, engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from kafkaesque.pipeline import jars
from kafkaesque.pipeline.errors import PipelineError
from kafkaesque.pipeline.java import find_java
from kafkaesque.pipeline.paths import cache_directory
from kafkaesque.pipeline.session import require_packages, spark_version
from kafkaesque.service.finding import Finding, Status


def examine(environment: Mapping[str, str]) -> list[Finding]:
    """All findings. The pipeline can run unless one of them is `fail`."""
    return [
        _check("java", "fail", lambda: _java(environment)),
        _check("packages", "fail", _packages),
        _check("connector jars", "warn", lambda: _jars(environment)),
        _decoder(),
        _engines(environment),
    ]


def _check(area: str, failed: Status, find: Callable[[], str]) -> Finding:
    """A finding with the text that `find` returns, or with status `failed` if it raises."""
    try:
        return Finding(area, "ok", find())
    except PipelineError as error:
        return Finding(area, failed, error.message, error.fix)


def _java(environment: Mapping[str, str]) -> str:
    java = find_java(environment, cache_directory(environment))
    return f"Java {java.major} at {java.home} (by {java.found_by})"


def _packages() -> str:
    require_packages()
    found = []
    for name in ("pyspark", "pyarrow", "deltalake", "pandas", "numpy", "protobuf"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _jars(environment: Mapping[str, str]) -> str:
    paths = jars.find(spark_version(), environment)
    return f"{', '.join(path.name for path in paths)} in {paths[0].parent}"


def _decoder() -> Finding:
    try:
        from kafkaesque.pipeline.kafka.decoding import load_decoder

        name, _ = load_decoder()
    except ImportError as error:
        return Finding("decoder", "fail", f"neither decoder can be loaded: {error}")
    if name == "compiled":
        return Finding("decoder", "ok", "compiled")
    return Finding(
        "decoder",
        "warn",
        "plain (numpy), which is slower",
        "reinstall with a C compiler on the PATH",
    )


def _engines(environment: Mapping[str, str]) -> Finding:
    try:
        jars.find(spark_version(), environment)
    except PipelineError:
        return Finding("engines", "ok", "python")
    return Finding("engines", "ok", "python (chosen by auto), jvm")
