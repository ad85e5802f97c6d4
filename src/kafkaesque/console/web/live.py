"""Live updates by server-sent events: changed parts of a page, and new points of its charts.

After each sample of the cluster, a part is rendered once for all its viewers and sent to those whose
page shows something else.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Any, Final

import msgspec

from kafkaesque.console.documents.cluster import marks
from kafkaesque.console.documents.state import ConsoleState, ResourceNotFound
from kafkaesque.console.web.pages import Visit, context_of
from kafkaesque.console.web.rendering import TemplateRenderer

SERIES_MAX: Final = 20
STREAMS_MAX: Final = 500
KEEP_ALIVE_S: Final = 15.0
STATUS_PART: Final = "live_status"


def sse_event(event: str, data: Any) -> bytes:
    """One server-sent event. JSON has no line breaks, so the data is one line."""
    return b"event: " + event.encode() + b"\ndata: " + msgspec.json.encode(data) + b"\n\n"


class LiveUpdates:
    """Renders and streams the live parts of pages."""

    def __init__(self, state: ConsoleState, rendering: TemplateRenderer) -> None:
        self._state = state
        self._rendering = rendering
        self._sample = -1
        self._rendered: dict[tuple[Any, ...], asyncio.Task[dict[str, str]]] = {}
        self.streams = 0

    async def stream(self, visit: Visit, series: list[str]) -> AsyncIterator[bytes]:
        sampler = self._state.sampler
        self.streams += 1
        try:
            yield b"retry: 2000\n\n"
            seen: dict[str, int] = {}
            sample, marked_s = sampler.sample_count, sampler.view.sampled_s
            while True:
                for event in await self._events(visit, series, seen, marked_s):
                    yield event
                marked_s = sampler.view.sampled_s
                try:
                    async with asyncio.timeout(KEEP_ALIVE_S):
                        sample = await sampler.next_sample(sample)
                except TimeoutError:
                    yield b": keep-alive\n\n"
        except ResourceNotFound:
            yield sse_event("gone", visit.path)
        finally:
            self.streams -= 1

    async def _events(
        self, visit: Visit, series: list[str], seen: dict[str, int], marked_s: float
    ) -> list[bytes]:
        parts = await self._parts(visit)
        changed = {}
        for name, html in parts.items():
            check = zlib.crc32(html.encode())
            if seen.get(name) != check:
                seen[name] = check
                changed[name] = html
        events = [sse_event("parts", changed)] if changed else []
        if series:
            events.append(sse_event("points", self._points(series, marked_s)))
        return events

    def _points(self, series: list[str], marked_s: float) -> dict[str, Any]:
        history = self._state.sampler.history
        return {
            "at_s": self._state.sampler.view.sampled_s,
            "values": {name: history.latest(name) for name in series[:SERIES_MAX]},
            "marks": marks(self._state, marked_s),
        }

    async def _parts(self, visit: Visit) -> dict[str, str]:
        """The parts of the current sample; the first caller renders them for all others."""
        current = self._state.sampler.sample_count
        if current != self._sample:
            self._sample, self._rendered = current, {}
        key = (visit.path, tuple(sorted(visit.query.items())), visit.is_operator)
        task = self._rendered.get(key)
        if task is None:
            task = self._rendered[key] = asyncio.create_task(self._render(visit))
        return await asyncio.shield(task)

    async def _render(self, visit: Visit) -> dict[str, str]:
        context = await context_of(self._state, visit)
        parts = self._rendering.parts(visit.page.template, context)
        return {STATUS_PART: self._rendering.page("_status.html", context), **parts}
