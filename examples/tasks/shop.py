"""A shop's tasks: run with `kafkaesque tasks worker shop:app --timers` in this directory.

python shop.py 127.0.0.1:9092        # sends a few calls
"""

from __future__ import annotations

import asyncio
import sys

from kafkaesque.client.kafka import KafkaLog
from kafkaesque.tasks import App, Reject, Retry, current

app = App("shop")


@app.task(key=lambda order_id: order_id, retry=Retry(attempts=3, first_s=0.2, factor=2.0))
async def charge(order_id: str, cents: int) -> None:
    """Calls of one order run one at a time; calls of different orders run concurrently."""
    if cents < 0:
        raise Reject("a charge cannot be negative")
    if cents == 0:
        raise RuntimeError("the bank does not answer")
    running = current()
    print(f"charged {order_id} {cents} (call {running.id if running else '-'})", flush=True)


@app.task(keeps_result=True)
def price(item: str, count: int = 1) -> int:
    """A plain function: it runs in a thread."""
    return 100 * len(item) * count


@app.task(effectively_once=True)
async def ship(order_id: str) -> None:
    """The calls that it sends and its own offset are committed in one transaction."""
    await charge.send(order_id, 500)


@app.task
async def remind(order_id: str) -> None:
    print(f"reminded {order_id}", flush=True)


app.cron("* * * * *", remind, "of the minute", name="minutely")


async def main(bootstrap: str) -> None:
    async with app.connect(KafkaLog(bootstrap)):
        for number in range(10):
            await charge.send(f"order-{number % 3}", 100 + number)
        await charge.send("order-broke", 0)
        await charge.send("order-odd", -1)
        await ship.send("order-9")
        reminder = await remind.send_after(2.0, "order-1")
        await remind.options(id="cancelled").send_after(2.0, "order-2")
        await app.cancel("cancelled")
        asked = await price.send("teapot", 2)
        print(f"teapots: {await asked.result()} cents; reminder {reminder.id}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
