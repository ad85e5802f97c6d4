"""Which back ends serve which application version: a table in a znode.

{"v1": "gw.cmd.v1", "v2": "gw.cmd.v2", "default": "v1"}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from kafkaesque.events.gateway import DEFAULT_VERSION, command_topic

DEFAULT_KEY = "default"


class BadRoutes(Exception):
    """The table is invalid; the previous one stays in force."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The topics of the back ends by application version."""

    topics: Mapping[str, str] = field(
        default_factory=lambda: {DEFAULT_VERSION: command_topic().name}
    )
    default: str = DEFAULT_VERSION

    def version_of(self, app_version: str) -> str | None:
        """The version that serves `app_version`. An empty one gets the default, an unknown one None."""
        if not app_version:
            return self.default
        return app_version if app_version in self.topics else None

    def topic_of(self, app_version: str) -> str | None:
        version = self.version_of(app_version)
        return None if version is None else self.topics[version]


def parse_routes(data: bytes) -> Routes:
    try:
        table = msgspec.json.decode(data, type=dict[str, str])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRoutes(f"the routes are not a JSON object of strings: {error}") from None
    default = table.pop(DEFAULT_KEY, None)
    if default not in table:
        raise BadRoutes(f"the default {default!r} is not a version of the routes")
    return Routes(table, default)
