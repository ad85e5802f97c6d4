from __future__ import annotations

import asyncio

import pytest

from kafkaesque.client.ports import LogError
from kafkaesque.events import tasks as protocol
from kafkaesque.tasks import App, TaskRefused


@pytest.mark.parametrize("name", ["", "Shop", "a.b", "a b", "-a", "x" * 65, "timers", "relays"])
def test_names_that_would_not_make_a_topic_are_refused(name: str) -> None:
    with pytest.raises(TaskRefused):
        App(name)


def test_a_task_is_callable_as_its_function_and_has_a_name() -> None:
    app = App("shop")

    @app.task(name="sum")
    def add(a: int, b: int = 1) -> int:
        return a + b

    assert add(2) == 3
    assert app.tasks["sum"].name == add.name == "sum"
    with pytest.raises(ValueError, match="declared twice"):
        app.task(name="sum")(lambda: None)
    with pytest.raises(TypeError, match="parameters"):
        app.task(name="any")(lambda *args: None)


def test_the_key_uses_the_named_arguments_including_defaults() -> None:
    app = App("shop")

    @app.task(key=lambda user, kind: f"{kind}/{user}")
    async def notify(user: str, text: str, kind: str = "mail") -> None: ...

    @app.task(key=lambda **named: str(sorted(named)))
    async def all_of(a: int, b: int = 2) -> None: ...

    assert notify.record("ann", "hi").key == b"mail/ann"
    assert notify.options(key="own").record("ann", "hi").key == b"own"
    assert all_of.record(1).key == b"['a', 'b']"


def test_a_record_has_everything_a_worker_needs() -> None:
    app = App("shop")

    @app.task(queue="mail", version=3, expires_s=60)
    async def post(text: str, times: int = 1) -> None: ...

    record = post.options(id="i-1", headers={"tenant": "x"}).record("hi")
    message = protocol.decode_task(record.value)
    assert (record.topic, message.id, message.version) == ("tasks.mail", "i-1", 3)
    assert bytes(message.args) == b'{"text":"hi"}'
    assert message.expires_ms == message.sent_ms + 60_000
    headers = dict(record.headers)
    assert headers["tenant"] == b"x"
    assert headers[protocol.TRACE] is not None
    assert app.queues == ["mail", "shop"]


@pytest.mark.parametrize(
    "options", [{"id": ""}, {"id": "x" * 513}, {"id": "!owner/1"}, {"headers": {"attempt": "9"}}]
)
def test_reserved_ids_and_headers_are_refused(options: dict[str, str]) -> None:
    app = App("shop")

    @app.task
    async def work() -> None: ...

    with pytest.raises(TaskRefused):
        work.options(**options).record()  # type: ignore[arg-type]


def test_a_call_too_large_for_the_log_is_refused() -> None:
    app = App("shop")

    @app.task
    async def work(text: str) -> None: ...

    with pytest.raises(TaskRefused, match="bytes"):
        work.record("x" * 1_000_000)


def test_sending_without_a_connection_says_what_is_missing() -> None:
    app = App("shop")

    @app.task
    async def work() -> None: ...

    with pytest.raises(LogError, match="connect"):
        asyncio.run(work.send())


def test_a_cron_that_cannot_work_is_refused_when_declared() -> None:
    app = App("shop")

    @app.task
    async def work(n: int) -> None: ...

    with pytest.raises(TaskRefused):
        app.cron("every day", work, 1)
    with pytest.raises(TaskRefused):
        app.cron("* * * * *", work, "one")
    app.cron("* * * * *", work, 1)
    with pytest.raises(ValueError, match="declared twice"):
        app.cron("* * * * *", work, 2)
