"""TLS ended by the gateway itself, for TCP and WebSocket."""

from __future__ import annotations

import ssl

import pytest
import trustme
from tests.gateway.stage import Stage, run, take

from kafkaesque.gateway.config import gateway_config
from kafkaesque.gateway.gateway import Gateway
from kafkaesque.model.errors import InvalidConfig
from kafkaesque.service.clock import SystemClock


@pytest.mark.parametrize("scheme", ["tls://", "wss://"])
def test_client_with_the_right_authority_talks_through_tls(scheme: str) -> None:
    async def story(on: Stage) -> None:
        authority = trustme.CA()
        certificate = authority.issue_cert("127.0.0.1")
        certificate.cert_chain_pems[0].write_to_path(str(on.data / "cert.pem"))
        certificate.private_key_pem.write_to_path(str(on.data / "key.pem"))
        gateway = await on.gateway(
            tls_certificate=str(on.data / "cert.pem"), tls_key=str(on.data / "key.pem")
        )
        context = ssl.create_default_context()
        authority.configure_trust(context)
        alice = await on.connected("alice", scheme + gateway.address, tls=context)
        await alice.send("echo", {"n": 1})
        assert (await take(alice, 1))[0].body == {"n": 1}

    run(story)


def test_a_missing_certificate_is_an_error() -> None:
    async def story(on: Stage) -> None:
        config = gateway_config({"tls.certificate": "/not/there.pem"})
        gateway = Gateway("gw", on.log, config, on.data, SystemClock())
        on.gateways.append(gateway)
        await gateway.prepare()
        with pytest.raises(InvalidConfig, match=r"tls\.certificate"):
            await gateway.listen("127.0.0.1", 0)

    run(story)
