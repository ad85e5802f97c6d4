from __future__ import annotations

import pytest

from kafkaesque.pipeline.errors import InvalidOption, KafkaRefused
from kafkaesque.pipeline.kafka.security import Plain, Scram, read_security


def test_scram_exchange_of_the_standard_is_reproduced() -> None:
    """The example of RFC 7677, section 3."""
    client = Scram("user", "pencil", "sha256", "rOprNGfwEbeRWgbNEkqO")
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert client.answer(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None
    assert client.is_done


def test_server_that_does_not_know_the_password_is_found_out() -> None:
    client = Scram("user", "other", "sha256", "rOprNGfwEbeRWgbNEkqO")
    client.first()
    client.answer(b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(KafkaRefused, match="does not know the password"):
        client.answer(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize(
    "challenge", [b"r=stolen,s=AAAA,i=4096", b"r=n,s=AAAA,i=99999999999", b"r=n,s=AAAA", b"junk"]
)
def test_server_that_breaks_the_exchange_is_refused(challenge: bytes) -> None:
    client = Scram("user", "pencil", "sha512", "n")
    client.first()
    with pytest.raises(KafkaRefused):
        client.answer(challenge)


def test_plain_sends_user_and_password_once() -> None:
    client = Plain("ann", "secret")
    assert client.first() == b"\0ann\0secret"
    assert client.answer(b"") is None


@pytest.mark.parametrize(
    "properties",
    [
        {"sasl.username": "ann", "sasl.password": 'a"b', "sasl.mechanisms": "SCRAM-SHA-512"},
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="ann" password="a\\"b";',
        },
    ],
)
def test_credentials_are_read_by_either_clients_names(properties: dict[str, str]) -> None:
    found = read_security({"security.protocol": "SASL_SSL", **properties})
    assert (found.username, found.password, found.uses_tls) == ("ann", 'a"b', True)
    assert "a\\" not in repr(found)
    assert 'a"b' not in repr(found)


@pytest.mark.parametrize(
    ("properties", "text"),
    [
        ({"security.protocol": "TELNET"}, "none of"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}, "engine=jvm"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "a user and a password"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "a.jks"}, "not PEM"),
    ],
)
def test_what_the_python_engine_cannot_do_is_told(properties: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text):
        read_security(properties)
