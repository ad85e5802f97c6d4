"""The cleaner's process as its broker sees it: started when there is a job, stopped when there is none.

Cleaning is work for a processor, and a thread would share this one's interpreter with every request.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncGenerator
from typing import Final

import msgspec

from kafkaesque.broker.storage.cleaner import CleanedSegment, Finished
from kafkaesque.broker.storage.cleaner_worker import (
    Failed,
    Order,
    decode_result,
    encode,
    frame,
    frame_size,
)
from kafkaesque.model.errors import StorageFailed

_MODULE: Final = "kafkaesque.broker.storage.cleaner_worker"
_HEAD_BYTES: Final = 4


class CleanerProcess:
    """One process, one job at a time."""

    __slots__ = ("_process",)

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def run(self, order: Order) -> AsyncGenerator[CleanedSegment | Finished, None]:
        """The results of a job, a Finished last. StorageFailed if it comes to nothing.

        To be closed by who does not take them all: the process then ends.
        """
        is_done = False
        try:
            process = await self._started()
            if process.stdin is None or process.stdout is None:
                raise StorageFailed("the cleaner has no pipes")
            process.stdin.write(frame(encode(order)))
            await process.stdin.drain()
            while not is_done:
                head = await process.stdout.readexactly(_HEAD_BYTES)
                result = decode_result(await process.stdout.readexactly(frame_size(head)))
                is_done = not isinstance(result, CleanedSegment)
                if isinstance(result, Failed):
                    raise StorageFailed(result.reason)
                yield result
        except (asyncio.IncompleteReadError, msgspec.MsgspecError, OSError) as error:
            raise StorageFailed(f"the cleaner's process is of no use: {error!r}") from error
        finally:
            if not is_done:
                await self.stop()

    async def _started(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", _MODULE),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
            )
        return self._process

    async def stop(self) -> None:
        """End it, whatever it does: what it wrote is of no use, and found to be so."""
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
