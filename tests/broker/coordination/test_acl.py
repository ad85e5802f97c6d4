from __future__ import annotations

import pytest
from kazoo.security import make_digest_acl_credential

from kafkaesque.broker.coordination.rules.acl import (
    OPEN,
    READ_ONLY,
    Acl,
    AuthIdentity,
    allows,
    prove,
    redact,
    require,
    settle,
)
from kafkaesque.broker.coordination.rules.vocabulary import Code, CoordinationError, Permission

JOE = AuthIdentity("digest", "joe:hash")
HERE = AuthIdentity("ip", "127.0.0.1")


@pytest.mark.parametrize(
    ("acl", "permission", "identities", "expected"),
    [
        (OPEN, Permission.ADMIN, (), True),
        (READ_ONLY, Permission.READ, (), True),
        (READ_ONLY, Permission.WRITE, (), False),
        ((), Permission.WRITE, (), True),
        ((Acl(31, "digest", "joe:hash"),), Permission.WRITE, (HERE, JOE), True),
        ((Acl(31, "digest", "joe:hash"),), Permission.WRITE, (HERE,), False),
        ((Acl(31, "digest", "joe:other"),), Permission.WRITE, (JOE,), False),
        ((Acl(1, "digest", "joe:hash"),), Permission.READ | Permission.ADMIN, (JOE,), True),
        ((Acl(31, "ip", "127.0.0.0/8"),), Permission.READ, (HERE,), True),
        ((Acl(31, "ip", "127.0.0.1"),), Permission.READ, (HERE,), True),
        ((Acl(31, "ip", "10.0.0.0/8"),), Permission.READ, (HERE,), False),
        ((Acl(31, "ip", "127.0.0.0/8"),), Permission.READ, (AuthIdentity("ip", "::1"),), False),
        ((Acl(31, "ip", "127.0.0.0/8"),), Permission.READ, (AuthIdentity("ip", "?"),), False),
    ],
)
def test_permissions(
    acl: tuple[Acl, ...],
    permission: Permission,
    identities: tuple[AuthIdentity, ...],
    expected: bool,
) -> None:
    assert allows(acl, permission, identities) is expected


def test_refusal_is_no_auth() -> None:
    with pytest.raises(CoordinationError) as caught:
        require(READ_ONLY, Permission.WRITE, ())
    assert caught.value.code is Code.NO_AUTH


def test_auth_becomes_the_identity_of_the_caller() -> None:
    settled = settle([Acl(31, "auth", "ignored")], (HERE, JOE, AuthIdentity("digest", "ann:x")))
    assert settled == (Acl(31, "digest", "joe:hash"), Acl(31, "digest", "ann:x"))


def test_duplicates_go_and_the_open_list_is_shared() -> None:
    assert settle([*OPEN, *OPEN], ()) is OPEN


@pytest.mark.parametrize(
    "entry",
    [
        ("auth", ""),
        ("world", "someone"),
        ("digest", "joe"),
        ("digest", "a:b:c"),
        ("digest", "joe:"),
        ("ip", "localhost"),
        ("ip", "1.2.3.4/33"),
        ("ip", "1.2.3.4/x"),
        ("ip", "::1"),
        ("super", "me"),
        ("", ""),
    ],
)
def test_access_list_entry_without_an_identity_is_rejected(entry: tuple[str, str]) -> None:
    with pytest.raises(CoordinationError) as caught:
        settle([Acl(31, *entry)], (HERE,))
    assert caught.value.code is Code.INVALID_ACL


def test_digest_is_the_one_that_kazoo_computes() -> None:
    proven = prove("digest", b"joe:secret", "127.0.0.1")
    assert proven == ("digest", make_digest_acl_credential("joe", "secret"))


def test_unknown_scheme_proves_nothing() -> None:
    assert prove("ip", b"", "1.2.3.4") == ("ip", "1.2.3.4")
    with pytest.raises(CoordinationError) as caught:
        prove("super", b"me", "1.2.3.4")
    assert caught.value.code is Code.AUTH_FAILED


def test_redacted_list_keeps_users_and_hides_hashes() -> None:
    acl = (Acl(31, "digest", "joe:hash"), Acl(1, "world", "anyone"))
    assert redact(acl) == (Acl(31, "digest", "joe:x"), Acl(1, "world", "anyone"))
