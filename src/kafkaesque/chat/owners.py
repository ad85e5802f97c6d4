"""Who serves which partition, so that a successor can end at once what a killed one left open.

A transaction whose writer died holds back every reader of its partitions until it times out. Its
successor finds the dead writer's transactional id here and takes it for a moment, which makes the broker
end that transaction. An owner that leaves in order takes its name off, so nobody alive is disturbed; one
that is fenced by mistake begins anew.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from kafkaesque.client.ports import Log, LogWriter, Record, WriterOptions
from kafkaesque.client.reading import read_stretch
from kafkaesque.events.chat import CHAT_OWNERS
from kafkaesque.model.ids import PartitionIndex

logger = logging.getLogger(__name__)


async def end_predecessors(log: Log, partitions: Iterable[PartitionIndex], me: str) -> list[str]:
    """Transactional ids of owners that did not leave in order; they can write no more."""
    owners: dict[bytes, str] = {}
    spans = await log.admin.spans(CHAT_OWNERS.name)
    async for records in read_stretch(log, spans):
        for record in records:
            owners[record.key or b""] = (record.value or b"").decode(errors="replace")
    found = {owners.get(b"%d" % partition, "") for partition in partitions} - {"", me}
    for transactional_id in sorted(found):
        logger.warning("ending what %s left open", transactional_id)
        # It sends nothing; librdkafka wants this below whatever `transaction.timeout.ms` is set.
        options = WriterOptions(transactional_id=transactional_id, delivery_timeout_ms=1000)
        successor = await log.open_writer(options)
        await successor.close()
    return sorted(found)


async def take(writer: LogWriter, partitions: Iterable[PartitionIndex], me: str) -> None:
    await _write(writer, partitions, me.encode())


async def leave(writer: LogWriter, partitions: Iterable[PartitionIndex]) -> None:
    await _write(writer, partitions, None)


async def _write(
    writer: LogWriter, partitions: Iterable[PartitionIndex], value: bytes | None
) -> None:
    records = [Record(CHAT_OWNERS.name, b"%d" % partition, value) for partition in partitions]
    if records:
        async with writer.transaction():
            await writer.send(records)
