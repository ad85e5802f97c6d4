"""The local server: routes, tokens, X's rules, REST pages, and the control endpoints.

GET  /subscribe                               Jetstream (WebSocket)
GET  /api/v1/streaming/hashtag?tag=           Mastodon (server-sent events)
GET  /api/v1/streaming                        Mastodon (WebSocket, subscribe messages)
GET  /api/v1/timelines/tag/{tag}              Mastodon (REST)
GET  /2/tweets/search/stream                  X (lines); rules under /2/tweets/search/stream/rules
GET  /2/tweets/search/recent                  X (REST, lags behind the stream)
GET  /2/tweets/compliance/stream              X (deletions)
GET  /local/status, POST /local/disconnect, POST /local/faults, GET /healthz
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict, fields
from typing import Any

import msgspec
from aiohttp import WSMsgType, web

from kafkaesque.model.ids import NO_TIMESTAMP
from kafkaesque.sources.local.connections import (
    ClientWriter,
    JetstreamWriter,
    LocalConnection,
    LocalServerCounts,
    MastodonEventWriter,
    MastodonSocketWriter,
    ServerFaults,
    XComplianceWriter,
    XFilteredWriter,
)
from kafkaesque.sources.local.feed import Feed
from kafkaesque.sources.local.rules import formats
from kafkaesque.sources.rules import generator, x
from kafkaesque.sources.rules.hashtags import distinct, normalise
from kafkaesque.sources.rules.parsing import time_ms

PAGE_LIMIT_MAX = 40
SEARCH_LIMIT_MAX = 100
SEARCH_LAG_SECONDS = 0.5
"""Lag of recent search; X's is half a minute."""
SUBSCRIBE_QUIET_SECONDS = 0.05
BODY_SIZE_BYTES_MAX = 1_000_000


class LocalServer:
    """Serves all three networks between `start` and `stop`."""

    def __init__(
        self, feed: Feed, faults: ServerFaults | None = None, *, token: str | None = None
    ) -> None:
        self.feed = feed
        self.faults = faults or ServerFaults()
        self.counts = LocalServerCounts()
        self._token = token
        self._rules: dict[str, x.XRule] = {}
        self._rule_number = 0
        self._runner = web.AppRunner(
            self._application(), handle_signals=False, access_log=None, shutdown_timeout=0.5
        )
        self._site: web.TCPSite | None = None

    async def start(self, host: str = "127.0.0.1", port: int = 0) -> None:
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port)
        await self._site.start()

    @property
    def address(self) -> str:
        host, port = self._runner.addresses[0][:2]
        return f"{host}:{port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def stop(self) -> None:
        self.disconnect_all()
        await self._runner.cleanup()

    def disconnect_all(self) -> None:
        """Disconnects every client."""
        self.counts.cue += 1

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=BODY_SIZE_BYTES_MAX)
        application.add_routes(
            [
                web.get("/subscribe", self._jetstream),
                web.get("/api/v1/streaming/hashtag", self._events),
                web.get("/api/v1/streaming", self._messages),
                web.get("/api/v1/timelines/tag/{tag}", self._page),
                web.get("/2/tweets/search/stream", self._filtered),
                web.get("/2/tweets/search/stream/rules", self._list_rules),
                web.post("/2/tweets/search/stream/rules", self._change_rules),
                web.get("/2/tweets/search/recent", self._search),
                web.get("/2/tweets/compliance/stream", self._compliance),
                web.get("/local/status", self._status),
                web.post("/local/disconnect", self._disconnect),
                web.post("/local/faults", self._set_faults),
                web.get("/healthz", self._healthy),
            ]
        )
        return application

    # -- Jetstream ------------------------------------------------------------------------------

    async def _jetstream(self, request: web.Request) -> web.StreamResponse:
        tick = self._admit(request, authorised=False, joins=True)
        cursor = _integer(request, "cursor")
        socket = await _upgrade(request)
        # "An absent cursor or a cursor from the future will result in live-tail operation."
        if cursor is not None:
            tick = min(tick, self.feed.timeline.tick_of(cursor))
        await self._serve_socket(
            socket, JetstreamWriter(self.feed.timeline, socket), tick, lambda _: None
        )
        return socket

    # -- Mastodon -------------------------------------------------------------------------------

    async def _events(self, request: web.Request) -> web.StreamResponse:
        tick = self._admit(request, joins=True)
        tag = normalise(request.query.get("tag", ""))
        if not tag:
            raise _refusal(400, "Missing tag name parameter")
        response = await _begin_stream(request, "text/event-stream")
        await self._serve(MastodonEventWriter(self.feed.timeline, response, tag), tick)
        return response

    async def _messages(self, request: web.Request) -> web.StreamResponse:
        tick = self._admit(request, joins=True)
        socket = await _upgrade(request)
        tags = set(distinct([request.query.get("tag", "")]))
        # Several tags arrive as several messages; sending starts when no more follow.
        quiet_s = None if not tags else SUBSCRIBE_QUIET_SECONDS
        while quiet_s is None or not tags:
            message = await socket.receive()
            if message.type is not WSMsgType.TEXT:
                return socket
            _subscribe(tags, message.data)
            quiet_s = SUBSCRIBE_QUIET_SECONDS
        with contextlib.suppress(TimeoutError):
            while (message := await socket.receive(quiet_s)).type is WSMsgType.TEXT:
                _subscribe(tags, message.data)
        writer = MastodonSocketWriter(self.feed.timeline, socket, tags)
        await self._serve_socket(socket, writer, tick, lambda text: _subscribe(tags, text))
        return socket

    async def _page(self, request: web.Request) -> web.Response:
        self._admit(request)
        tag = normalise(request.match_info["tag"])
        limit = min(_integer(request, "limit") or 20, PAGE_LIMIT_MAX)
        seed, head = self.feed.timeline.seed, self.feed.head()
        least = _integer(request, "min_id")
        found: list[dict[str, Any]] = []
        for post in generator.posts(
            seed, 0 if least is None else generator.number_of_status(seed, least), head
        ):
            if post.number >= head or len(found) == limit:
                break
            deleted = post.deleted_after and post.number + post.deleted_after < head
            if tag in distinct(post.tags) and not deleted:
                found.append(formats.mastodon_status(self.feed.timeline, post))
        self.counts.pages += 1
        return _json(found[::-1])

    # -- X --------------------------------------------------------------------------------------

    async def _filtered(self, request: web.Request) -> web.StreamResponse:
        tick, until = self._tick_range(request, self._admit(request, joins=True))
        response = await _begin_stream(request, "application/json")
        writer = XFilteredWriter(self.feed.timeline, response, self._rules.values)
        await self._serve(writer, tick, until)
        return response

    async def _search(self, request: web.Request) -> web.Response:
        """One page, newest first, without deleted posts and without the newest ones."""
        self._admit(request)
        if self.faults.search_status:
            raise _refusal(self.faults.search_status, "refused by an injected fault")
        tags = set(distinct(request.query.get("query", "").split(" OR ")))
        limit = min(_integer(request, "max_results") or 10, SEARCH_LIMIT_MAX)
        head = self.feed.tick_at(time.time() - SEARCH_LAG_SECONDS)
        first = self.feed.tick_at(_moment(request, "start_time"))
        number = min(_integer(request, "next_token") or head, head)
        found: list[dict[str, Any]] = []
        while number > first and len(found) < limit:
            number -= 1
            post = generator.post(self.feed.timeline.seed, number)
            deleted = post.deleted_after and post.number + post.deleted_after < self.feed.head()
            if tags.intersection(distinct(post.tags)) and not deleted:
                found.append(formats.x_post(self.feed.timeline, post))
        self.counts.pages += 1
        meta = {"result_count": len(found)} | (
            {"next_token": str(number)} if number > first else {}
        )
        return _json({"data": found, "meta": meta} if found else {"meta": meta})

    async def _compliance(self, request: web.Request) -> web.StreamResponse:
        tick, until = self._tick_range(request, self._admit(request))
        response = await _begin_stream(request, "application/json")
        await self._serve(XComplianceWriter(self.feed.timeline, response), tick, until)
        return response

    def _tick_range(self, request: web.Request, now: int) -> tuple[int, int | None]:
        """First and end tick from X's parameters: backfill_minutes, or start_time and end_time."""
        if "start_time" in request.query:
            start, end = (_moment(request, name) for name in ("start_time", "end_time"))
            return self.feed.tick_at(start), self.feed.tick_at(end)
        minutes = _integer(request, "backfill_minutes") or 0
        if not 0 <= minutes <= 5:
            raise _refusal(400, "backfill_minutes must be between 0 and 5")
        return (self.feed.tick_at(time.time() - 60 * minutes) if minutes else now), None

    async def _list_rules(self, request: web.Request) -> web.Response:
        self._admit(request)
        return _json({"data": list(self._rules.values())} if self._rules else {"meta": {}})

    async def _change_rules(self, request: web.Request) -> web.Response:
        self._admit(request)
        body = msgspec.json.decode(await request.read())
        for rule in body.get("add", ()):
            if len(rule["value"]) > x.RULE_LENGTH_MAX or len(self._rules) >= x.RULES_MAX:
                raise _refusal(400, "rule too long, or too many rules")
            self._rule_number += 1
            name = str(self._rule_number)
            self._rules[name] = x.XRule(rule["value"], rule.get("tag", ""), name)
        for name in body.get("delete", {}).get("ids", ()):
            self._rules.pop(name, None)
        return _json({"meta": {"summary": {}}})

    # -- control --------------------------------------------------------------------------------

    async def _status(self, _request: web.Request) -> web.Response:
        timeline = self.feed.timeline
        return _json(
            {
                **asdict(self.counts),
                "seed": timeline.seed,
                "rate": timeline.rate,
                "published": self.feed.head(),
                "faults": asdict(self.faults),
            }
        )

    async def _disconnect(self, _request: web.Request) -> web.Response:
        disconnected = self.counts.open
        self.disconnect_all()
        return _json({"disconnected": disconnected})

    async def _set_faults(self, request: web.Request) -> web.Response:
        try:
            wanted = msgspec.json.decode(await request.read(), type=dict[str, int])
        except msgspec.DecodeError as error:
            raise _refusal(400, str(error)) from None
        known = {field.name for field in fields(ServerFaults)}
        if unknown := wanted.keys() - known:
            raise _refusal(400, f"unknown fault: {', '.join(sorted(unknown))}")
        for name, value in wanted.items():
            setattr(self.faults, name, value)
        return _json(asdict(self.faults))

    async def _healthy(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    # -- shared ---------------------------------------------------------------------------------

    def _admit(self, request: web.Request, *, authorised: bool = True, joins: bool = False) -> int:
        """Refuses a client by fault or without the token; otherwise returns its first tick.

        A client that `joins` reads posts; the first such client starts the timeline.
        """
        faults = self.faults
        if faults.refuse_status:
            self.counts.refused += 1
            status = faults.refuse_status
            if faults.refuse_count:
                faults.refuse_count -= 1
                faults.refuse_status = status if faults.refuse_count else 0
            raise _refusal(status, "refused by an injected fault")
        if (
            authorised
            and self._token is not None
            and request.headers.get("Authorization") != f"Bearer {self._token}"
        ):
            self.counts.refused += 1
            raise _refusal(401, "The access token is invalid")
        return self.feed.join() if joins else self.feed.head()

    async def _serve_socket(
        self,
        socket: web.WebSocketResponse,
        writer: ClientWriter,
        tick: int,
        on_message: Callable[[str], None],
    ) -> None:
        """Sends and receives concurrently: pongs and a close are noticed only while receiving."""
        serving = asyncio.create_task(self._serve(writer, tick))
        listening = asyncio.create_task(_listen(socket, on_message))
        try:
            await asyncio.wait((serving, listening), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (serving, listening):
                task.cancel()
            await asyncio.gather(serving, listening, return_exceptions=True)
            await socket.close()

    async def _serve(self, writer: ClientWriter, tick: int, until: int | None = None) -> None:
        # Most connections end because the client disconnects.
        with contextlib.suppress(ConnectionError):
            await LocalConnection(self.feed, self.faults, self.counts, writer).run(tick, until)


async def _upgrade(request: web.Request) -> web.WebSocketResponse:
    socket = web.WebSocketResponse(heartbeat=20.0, max_msg_size=64_000)
    await socket.prepare(request)
    return socket


async def _listen(socket: web.WebSocketResponse, on_message: Callable[[str], None]) -> None:
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            on_message(message.data)


async def _begin_stream(request: web.Request, content_type: str) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": content_type})
    await response.prepare(request)
    return response


def _subscribe(tags: set[str], text: str) -> None:
    try:
        message: Any = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return
    if isinstance(message, dict) and isinstance(message.get("tag"), str):
        named = distinct([message["tag"]])
        if message.get("type") == "subscribe":
            tags.update(named)
        elif message.get("type") == "unsubscribe":
            tags.difference_update(named)


def _integer(request: web.Request, name: str) -> int | None:
    text = request.query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise _refusal(400, f"{name} must be a number")
    return int(text)


def _moment(request: web.Request, name: str) -> float:
    at_ms = time_ms(request.query.get(name), NO_TIMESTAMP)
    if at_ms == NO_TIMESTAMP:
        raise _refusal(400, f"{name} must be an ISO 8601 time")
    return at_ms / 1000


def _json(value: object, status: int = 200) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json"
    )


def _refusal(status: int, text: str) -> web.HTTPException:
    class Refusal(web.HTTPException):
        status_code = status

    body = msgspec.json.encode({"error": text}).decode()
    return Refusal(text=body, content_type="application/json")
