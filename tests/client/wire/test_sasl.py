"""The client's side of SASL exchanges."""

from __future__ import annotations

import pytest

from kafkaesque.client.wire.sasl import Plain, SaslCredentials, SaslFailed, Scram, start_exchange

NONCE = "rOprNGfwEbeRWgbNEkqO"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)


def scram(password: str = "pencil", nonce: str = NONCE) -> Scram:
    return Scram(SaslCredentials("SCRAM-SHA-256", "user", password), nonce)


def test_scram_exchange_of_rfc_7677_is_reproduced() -> None:
    """The example of section 3."""
    client = scram()
    assert client.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert client.respond(CHALLENGE) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


def test_server_that_does_not_know_the_password_is_rejected() -> None:
    client = scram("other")
    client.respond(b"r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096")
    with pytest.raises(SaslFailed, match="does not know the password"):
        client.respond(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("final", [b"e=invalid-proof", b"v=wrong", b"", b"\xff"])
def test_final_message_without_the_right_signature_is_rejected(final: bytes) -> None:
    client = scram()
    client.respond(CHALLENGE)
    with pytest.raises(SaslFailed):
        client.respond(final)


@pytest.mark.parametrize(
    "challenge",
    [
        b"r=stolen,s=AAAA,i=4096",
        b"r=n,s=AAAA,i=99999999999",
        b"r=n,s=AAAA,i=0",
        b"r=n,s=AAAA",
        b"r=n,s=A,i=4096",
        b"junk",
        b"\xff\xfe",
    ],
)
def test_server_that_breaks_the_exchange_is_rejected(challenge: bytes) -> None:
    client = Scram(SaslCredentials("SCRAM-SHA-512", "user", "pencil"), "n")
    with pytest.raises(SaslFailed):
        client.respond(challenge)


def test_username_is_escaped() -> None:
    client = start_exchange(SaslCredentials("SCRAM-SHA-512", "a=b,c", "pw"), "n")
    assert client.first() == b"n,,n=a=3Db=2Cc,r=n"


def test_plain_sends_user_and_password_once() -> None:
    client = start_exchange(SaslCredentials("PLAIN", "ann", "secret"), "n")
    assert isinstance(client, Plain)
    assert client.first() == b"\0ann\0secret"
    assert client.respond(b"") is None


def test_password_is_not_in_the_repr() -> None:
    assert "secret" not in repr(SaslCredentials("PLAIN", "me", "secret"))
