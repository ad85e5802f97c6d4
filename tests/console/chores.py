"""A task application for the console to show: tasks that succeed, are retried, or are dead-lettered."""

from __future__ import annotations

from kafkaesque.tasks import NO_RETRY, App, Retry, current

app = App("chores", partitions=1)


@app.task
async def sweep(room: str) -> str:
    return room


@app.task(retry=Retry(attempts=3, first_s=0.05, jitter=False))
async def fetch_water(jug: int) -> None:
    if current().attempt == 1:
        raise ConnectionError(f"no water for jug {jug}")


@app.task(retry=NO_RETRY)
async def move_a_mountain(name: str) -> None:
    raise ValueError(f"{name} <b>does not</b> move")
