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
def test_an_invalid_setting_is_named_in_the_error(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name.replace(".", r"\.")):
        gateway_config({name: value})


def test_every_setting_has_a_description() -> None:
    assert all(setting.doc for setting in GATEWAY_SETTINGS.values())
