"""Threads that wait for the disk, so that the event loop does not: what a consumer wants is loaded into
the page cache, and then read as ever.

Few of them, and of their own: others that have work for a thread do not stand behind slow readers.
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
        """Done when all of it is, or was, in memory. What cannot be read is left to the reader."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, one.load) for one in ranges))

    def close(self) -> None:
        """Begin no more; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
