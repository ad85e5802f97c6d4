"""Renders templates. Everything is escaped; nothing is marked safe."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

import jinja2

from kafkaesque.console.rules.formatting import (
    clock_time,
    count,
    duration,
    iso_time,
    milliseconds,
    percent,
    retention,
    short,
    size,
    spark_points,
)

ROOT: Final = Path(__file__).resolve().parent.parent


def with_query(current: dict[str, Any], **changes: Any) -> str:
    """The current query string with some parameters changed; empty ones are left out."""
    merged = {**current, **changes}
    kept = {name: value for name, value in merged.items() if value not in ("", None)}
    return f"?{urlencode(kept)}" if kept else "?"


def path_quote(text: str) -> str:
    return quote(text, safe="")


def _asset_version() -> str:
    """A hash of all assets. It is part of their URLs, so that browsers may cache them forever."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "static").iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class TemplateRenderer:
    """Renders whole pages, or only the live parts of a page."""

    def __init__(self) -> None:
        self.version = _asset_version()
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(ROOT / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters |= {
            "count": count, "short": short, "size": size, "duration": duration,
            "milliseconds": milliseconds, "retention": retention, "clock_time": clock_time,
            "iso_time": iso_time, "percent": percent, "spark_points": spark_points,
            "path_quote": path_quote,
        }  # fmt: skip
        self._environment.globals |= {"with_query": with_query, "assets": f"/static/{self.version}"}
        # A global rather than an import, because a block that is rendered alone has no imports.
        self._environment.globals["ui"] = self._environment.get_template("_macros.html").module

    def page(self, template: str, context: dict[str, Any]) -> str:
        return self._environment.get_template(template).render(context)

    def parts(self, template: str, context: dict[str, Any]) -> dict[str, str]:
        """The blocks whose names start with `live_`, each rendered alone."""
        found = self._environment.get_template(template)
        return {
            name: "".join(block(found.new_context(context)))
            for name, block in found.blocks.items()
            if name.startswith("live_")
        }
