"""The compiled short way serves as the one in Python does, whatever comes in and is answered."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from time import monotonic
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kafkaesque.broker.server import dispatch, native
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.dispatch import Begun, Dispatcher, PlainRoute
from kafkaesque.broker.server.handler import NOT_PLAIN, Plain, handler
from kafkaesque.broker.server.stats import LATENCY_BUCKETS_SECONDS, BrokerStats
from kafkaesque.records.native import pure
from kafkaesque.wire.codec import encode_request_frame
from kafkaesque.wire.flat import Values
from kafkaesque.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kafkaesque.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

pytestmark = pytest.mark.skipif(
    pure(Dispatcher.serve_plainly) is Dispatcher.serve_plainly,
    reason="nothing is compiled: unset KAFKAESQUE_PURE, or apt install gcc python3-dev and make clean setup",
)
Serve = Callable[..., tuple[int, int, Begun | None]]
SIDES: dict[str, Serve] = {
    "compiled": Dispatcher.serve_plainly,
    "pure": pure(Dispatcher.serve_plainly),
}
VERSION = 4


class Broken(Exception):
    pass


class Waiting:
    """Stands for an answer that is not there yet."""


WAITING = Waiting()


def handle_plainly(context: Context, values: Values, version: int) -> Any:
    """By the group's name, as a handler of the short way may."""
    group_id, generation_id, *_ = values
    context.stats.produced_records_total += 1
    if group_id == "plain":
        return generation_id, version
    if group_id == "other":
        return HeartbeatResponse(error_code=3)
    if group_id == "later":
        return WAITING
    if group_id == "broken":
        raise Broken(generation_id)
    if group_id == "too large":
        return 2**70, 0
    return NOT_PLAIN


PLAIN = Plain(handle_plainly, HeartbeatResponse, ("throttle_time_ms", "error_code"))
HANDLERS = {
    HeartbeatRequest.API_KEY: handler(HeartbeatRequest, versions=(0, VERSION), plain=PLAIN)(
        lambda *_: HeartbeatResponse()
    ),
    DeleteGroupsRequest.API_KEY: handler(DeleteGroupsRequest, versions=(0, 2))(
        lambda *_: DeleteGroupsResponse()
    ),
}


def new_dispatcher() -> tuple[Dispatcher, BrokerStats]:
    stats = BrokerStats()
    return Dispatcher(cast(Context, SimpleNamespace(stats=stats)), HANDLERS), stats


def frame_of(group: str, number: int = 0, version: int = VERSION) -> memoryview:
    request = HeartbeatRequest(group_id=group, generation_id=number, member_id="m")
    return memoryview(b"".join(encode_request_frame(request, version, number, "c")))[4:]


def without_short_way() -> memoryview:
    request = DeleteGroupsRequest(groups_names=["g"])
    return memoryview(b"".join(encode_request_frame(request, 2, 1, "c")))[4:]


def served(
    side: str, frames: list[memoryview], size_bytes_max: int = 10**6, *, is_quick: bool = True
) -> Any:
    """All that can be told of it from outside."""
    dispatcher, stats = new_dispatcher()
    outbox: list[Any] = [b"before"]
    started = monotonic() if is_quick else 0.0
    try:
        told: Any = SIDES[side](dispatcher, frames, started, outbox, size_bytes_max)
    except (Broken, ArithmeticError, ValueError) as error:
        told = type(error), str(error)
    counted = {
        key: (found.received_bytes, found.sent_bytes, sum(found.latency.counts))
        for key, found in stats.apis.items()
    }
    return told, outbox, stats.produced_records_total, counted


NAMES = ["plain"] * 8 + ["other", "later", "broken", "too large", "ordinary"]


@pytest.mark.parametrize("seed", range(60))
def test_any_run_of_requests_is_served_alike(seed: int) -> None:
    rng = random.Random(seed)
    frames = [frame_of(rng.choice(NAMES), n, rng.randint(0, VERSION)) for n in range(9)]
    if rng.random() < 0.3:
        frames.insert(rng.randrange(9), without_short_way())
    if rng.random() < 0.3:
        number = rng.randrange(9)
        frames[number] = frames[number][: rng.randint(8, len(frames[number]))]
    size_bytes_max = rng.choice([0, 50, 10**6])
    is_quick = rng.random() < 0.7
    compiled, python = (served(side, frames, size_bytes_max, is_quick=is_quick) for side in SIDES)
    assert compiled == python
    assert compiled[1][0] == b"before"


@pytest.mark.parametrize("side", SIDES)
def test_one_that_waits_is_the_last_of_its_run(side: str) -> None:
    frames = [frame_of("plain", 1), frame_of("later", 2), frame_of("plain", 3)]
    (count, size_bytes, begun), outbox, handled, _ = served(side, frames)
    assert (count, handled) == (2, 2)
    assert size_bytes == len(outbox[1])
    assert begun.header.correlation_id == 2
    assert begun.later is WAITING


@pytest.mark.parametrize("side", SIDES)
def test_one_for_the_ordinary_way_is_left_to_it(side: str) -> None:
    for frame in (frame_of("ordinary"), without_short_way()):
        (count, _, begun), outbox, _, _ = served(side, [frame_of("plain"), frame])
        assert (count, begun, len(outbox)) == (1, None, 2)


@pytest.mark.parametrize("side", SIDES)
def test_no_more_are_served_than_may_be_answered(side: str) -> None:
    frames = [frame_of("plain", n) for n in range(9)]
    answer_bytes = len(served(side, frames[:1])[1][1])
    for limit, count in ((0, 1), (answer_bytes - 1, 1), (answer_bytes, 2), (10**6, 9)):
        assert served(side, frames, limit)[0] == (count, count * answer_bytes, None)


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.0, 1.01, 4.0, 1e5])
def test_latencies_fall_in_the_same_buckets(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    now = 1000.0
    for module in (native, dispatch):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    compiled = native.compiled_serve_plainly(Dispatcher, PlainRoute)
    seen = []
    for serve in (compiled, SIDES["pure"]):
        dispatcher, stats = new_dispatcher()
        for started in (now, now - seconds * LATENCY_BUCKETS_SECONDS[0]):
            serve(dispatcher, [frame_of("plain")], started, [], 100)
        latency = stats.apis[HeartbeatRequest.API_KEY].latency
        seen.append((latency.counts, latency.sum_seconds))
    assert seen[0] == seen[1]


def test_plain_answers_need_no_python_but_the_handler() -> None:
    dispatcher, _ = new_dispatcher()
    frames = [frame_of("plain", n) for n in range(9)]
    called: list[str] = []
    started = monotonic()
    sys.setprofile(lambda frame, event, _: event == "call" and called.append(frame.f_code.co_name))
    try:
        dispatcher.serve_plainly(frames, started, [], 10**6)
    finally:
        sys.setprofile(None)
    assert called.count("handle_plainly") == len(frames)
    assert "serve" not in called


def test_nothing_is_kept_of_what_was_served() -> None:
    dispatcher, stats = new_dispatcher()
    names = ["plain", "other", "later", "ordinary", "broken"]

    def turn() -> list[int]:
        for number in range(200):
            data = bytearray(frame_of(names[number % len(names)], number))
            outbox: list[Any] = []
            frames = [memoryview(data)]
            try:
                done = dispatcher.serve_plainly(frames, 0.0, outbox, 100)
                assert sys.getrefcount(done) == 2
            except Broken:
                pass
            frames.clear()
            data.append(0)  # raises if somebody still looks at it
        route = dispatcher._plain[HeartbeatRequest.API_KEY << 16 | VERSION]
        held = [dispatcher, dispatcher._context, dispatcher._plain, route, WAITING, stats]
        return [sys.getrefcount(thing) for thing in held]

    turn()
    assert turn() == turn()


@pytest.mark.parametrize("frames", [(), None, [b"abc"], [7]])
def test_what_is_no_list_of_frames_is_no_crash(frames: Any) -> None:
    dispatcher, _ = new_dispatcher()
    try:
        told = dispatcher.serve_plainly(frames, 0.0, [], 10)
    except (TypeError, dispatch.struct.error):
        return
    assert told == (0, 0, None)
