"""One module per API, each with a `HANDLER`. To add an API, add a module: this table finds it, and
the ApiVersions answer is computed from it. Handlers never call each other.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from kafkaesque.broker.server.handler import Handler


def load_handlers() -> Mapping[int, Handler[Any]]:
    """Returns every handler of this package by API key."""
    handlers: dict[int, Handler[Any]] = {}
    for module in pkgutil.iter_modules(__path__):
        found: Handler[Any] = importlib.import_module(f"{__name__}.{module.name}").HANDLER
        handlers[found.key] = found
    return dict(sorted(handlers.items()))
