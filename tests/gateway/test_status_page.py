from __future__ import annotations

import httpx
from tests.gateway.stage import Stage, run

from kafkaesque.service.status_page import StatusServer


def test_page_shows_health_readiness_figures_and_state() -> None:
    async def story(on: Stage) -> None:
        gateway = await on.gateway()
        page = StatusServer(gateway)
        address = await page.start("127.0.0.1", 0)
        await on.connected("alice")
        async with httpx.AsyncClient(base_url=f"http://{address}") as http:
            assert (await http.get("/healthz")).text == "ok\n"
            assert (await http.get("/readyz")).status_code == 200
            assert "kafkaesque_gateway_connections 1" in (await http.get("/metrics")).text
            status = (await http.get("/status")).json()
            assert (status["gateway"], status["connections"]) == ("gw-1", 1)
            assert status["inbox_partitions"] == 1
            gateway.draining = True
            answer = await http.get("/readyz")
            assert (answer.status_code, answer.text) == (503, "draining\n")
        await page.stop()

    run(story)
