"""TLS and SASL from Kafka's property names."""

from __future__ import annotations

import pytest

from kafkaesque.client.wire.sasl import SaslCredentials
from kafkaesque.client.wire.security import PLAINTEXT, InvalidSecurity, Security, read_security


def test_default_is_plaintext() -> None:
    assert read_security({}) == PLAINTEXT
    assert PLAINTEXT.tls_context() is None
    assert read_security({"security.protocol": "ssl"}).uses_tls


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.username": "ann", "sasl.password": 'a"b', "sasl.mechanisms": "SCRAM-SHA-512"},
        {"sasl.username": "ann", "sasl.password": 'a"b', "sasl.mechanism": "scram-sha-512"},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ann" password="a\\"b";',
        },
    ],
)
def test_credentials_are_read_by_either_clients_names(properties: dict[str, str]) -> None:
    found = read_security({"security.protocol": "SASL_SSL", **properties})
    assert found.uses_tls
    assert found.credentials == SaslCredentials("SCRAM-SHA-512", "ann", 'a"b')
    assert "a\\" not in repr(found)
    assert 'a"b' not in repr(found)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"security.protocol": "TELNET"}, "none of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, r"sasl\.password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "a.jks"}, "not PEM"),
    ],
)
def test_properties_that_cannot_be_used_are_refused(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidSecurity, match=text):
        read_security(properties)


def test_tls_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidSecurity, match="TLS files"):
        Security(uses_tls=True, ca_file="/no/such/file.pem").tls_context()
