"""From an event of the chat to a connected client: the job, a gateway on a socket, a client of it."""

from __future__ import annotations

import asyncio

from tests.gateway.logs import records_of
from tests.gateway.stage import CLOCK, Stage, run, take
from tests.waiting import until

from kafkaesque.client.ports import Record
from kafkaesque.events.chat import CHAT_EVENTS, MessageSent, stage_envelope
from kafkaesque.events.envelope import encode
from kafkaesque.events.gateway import PRESENCE
from kafkaesque.tasks.config import TasksConfig
from kafkaesque.tasks.jobs.app import ChatJobs
from kafkaesque.tasks.jobs.config import jobs_config
from kafkaesque.tasks.worker import Worker


def sent_to(recipient: str, message_id: str) -> Record:
    message = MessageSent(message_id=message_id, conversation_id="c", sender="ann",
                          recipient=recipient, sent_ms=CLOCK.wall_ms())  # fmt: skip
    return Record(CHAT_EVENTS.name, b"c", encode(stage_envelope(message)))


def test_a_connected_user_is_notified_once_through_the_gateway() -> None:
    async def story(play: Stage) -> None:
        await play.gateway()
        bob = await play.connected("bob")

        async def is_present() -> bool:
            return any(one.key == b"bob" for one in await records_of(play.log, PRESENCE.name))

        await until(is_present)
        await play.log.admin.ensure_topics([CHAT_EVENTS])
        jobs = ChatJobs(jobs_config({}))
        worker = Worker(jobs.app, play.log, TasksConfig(), name="jobs")
        working = asyncio.create_task(worker.run())
        writer = await play.log.open_writer()
        try:
            await writer.send([sent_to("bob", "m1"), sent_to("nobody", "m2"), sent_to("bob", "m3")])
            found = await take(bob, 2)
        finally:
            await writer.close()
            worker.stop()
            await working
        assert [one.type for one in found] == ["notification"] * 2
        assert [one.body["message_id"] for one in found] == ["m1", "m3"]
        assert {one.body["from"] for one in found} == {"ann"}
        assert worker.metrics.tasks["notify"].done == 3

    run(story)
