"""Loads parts of log files into the page cache in worker threads, so that the event loop does not
wait for the disk.

The pool is small and separate: other work for threads does not queue after slow reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kafkaesque.broker.storage.open_files import FileRange

THREADS: Final = 4


class PageLoader:
    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="load")

    async def load(self, ranges: Sequence[FileRange]) -> None:
        """Returns when all ranges have been loaded. Errors are left to the read that follows."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, one.load) for one in ranges))

    def close(self) -> None:
        """Starts no more loads. Running ones end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
