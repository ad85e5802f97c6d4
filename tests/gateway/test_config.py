from __future__ import annotations

import pytest

from kafkaesque.gateway.config import GATEWAY_SETTINGS, GatewayConfig, gateway_config
from kafkaesque.model.errors import InvalidConfig


def test_settings_are_read_by_their_names() -> None:
    config = gateway_config({"send.rate": "2.5", "ws.origins": "https://a, https://b"})
    assert (config.send_rate, config.ws_origins) == (2.5, ("https://a", "https://b"))
    assert gateway_config({}) == GatewayConfig()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("no.such", "1"),
        ("frame.max.bytes", "5"),
        ("auth.jwt.algorithms", "none"),
        ("send.rate", "x"),
    ],
)
def test_setting_that_is_wrong_is_named(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        gateway_config({name: value})


def test_every_setting_says_what_it_does() -> None:
    assert all(setting.doc for setting in GATEWAY_SETTINGS.values())
