"""Sessions on the wire: timeouts, reconnects, moves, expiry; and access control of nodes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from tests.conformance_zookeeper.conftest import IS_BROKER
from tests.conformance_zookeeper.raw import Closed, RawClient, body, create_body
from tests.waiting import eventually

NewRaw = Callable[[], RawClient]

CREATE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN, PING = 1, 3, 4, 5, 6, 7, 8, 11
AUTH, CLOSE, DELETE, ADD_WATCH, SYNC = 100, -11, 2, 106, 9
NO_NODE, NO_AUTH, BAD_VERSION, AUTH_FAILED = -101, -102, -103, -115


def test_timeout_is_limited_to_the_bounds(raw: NewRaw) -> None:
    # A broker has ZooKeeper's own bounds; the other servers of these tests have shorter ones.
    least_ms = 4000 if IS_BROKER else 400
    asked = {1: least_ms, 5000: 5000, 10_000_000: 40_000, -5: least_ms}
    assert {wanted: raw().connect(timeout_ms=wanted).timeout_ms for wanted in asked} == asked


def test_old_client_without_the_read_only_flag_is_served(raw: NewRaw) -> None:
    connection = raw()
    assert connection.connect(read_only_flag=False).session_id != 0
    assert connection.ask(PING, b"", -2).code == 0


def test_session_resumes_on_another_connection(raw: NewRaw, path: str) -> None:
    first, second = raw(), raw()
    session = first.connect()
    first.ask(CREATE, create_body(path + "/mine", flags=1))
    first.close()
    again = second.connect(session_id=session.session_id, password=session.password)
    assert again == session
    reply = second.ask(EXISTS, body(path + "/mine", False))
    assert reply.code == 0


def test_session_that_moved_loses_its_old_connection(raw: NewRaw) -> None:
    first, second = raw(), raw()
    session = first.connect()
    second.connect(session_id=session.session_id, password=session.password)
    assert first.is_closed()
    assert second.ask(PING, b"", -2).code == 0


@pytest.mark.parametrize("password", [bytes(16), b"", b"x" * 16])
def test_wrong_password_is_an_expired_session(raw: NewRaw, password: bytes) -> None:
    first, thief = raw(), raw()
    session = first.connect()
    answer = thief.connect(session_id=session.session_id, password=password)
    assert (answer.timeout_ms, answer.session_id) == (0, 0)
    assert thief.is_closed()


def test_unknown_session_is_an_expired_one(raw: NewRaw) -> None:
    connection = raw()
    answer = connection.connect(session_id=0x1234567, password=bytes(16))
    assert (answer.timeout_ms, answer.session_id, answer.password) == (0, 0, bytes(16))
    assert connection.is_closed()


def test_closed_session_removes_its_ephemerals_and_cannot_resume(raw: NewRaw, path: str) -> None:
    first, other, late = raw(), raw(), raw()
    other.connect()
    session = first.connect()
    first.ask(CREATE, create_body(path + "/e", flags=1))
    assert first.ask(CLOSE).code == 0
    assert first.is_closed()
    assert other.ask(EXISTS, body(path + "/e", False)).code == NO_NODE
    assert late.connect(session_id=session.session_id, password=session.password).session_id == 0


def test_silent_session_expires_after_its_timeout_and_not_before(raw: NewRaw, path: str) -> None:
    silent, other = raw(), raw()
    other.connect()
    session = silent.connect(timeout_ms=600)
    silent.ask(CREATE, create_body(path + "/e", flags=1))
    heard = time.monotonic()
    silent.send(PING, xid=-2)
    eventually(lambda: other.ask(EXISTS, body(path + "/e", False)).code == NO_NODE)
    assert time.monotonic() - heard >= session.timeout_ms / 1000
    assert silent.receive().xid == -2
    assert silent.is_closed()


def test_session_with_pings_does_not_expire(raw: NewRaw, path: str) -> None:
    pinging, other = raw(), raw()
    other.connect()
    pinging.connect(timeout_ms=600)
    pinging.ask(CREATE, create_body(path + "/e", flags=1))
    for _ in range(10):
        other.ask(SYNC, body(path))
        time.sleep(0.15)  # the ping interval of a client with such a timeout
        assert pinging.ask(PING, b"", -2).code == 0
        assert other.ask(EXISTS, body(path + "/e", False)).code == 0


def test_client_with_a_newer_zxid_is_refused(raw: NewRaw) -> None:
    ahead = raw()
    with pytest.raises(Closed):
        ahead.connect(last_zxid=1 << 60)


def test_requests_of_the_connect_packet_are_answered(raw: NewRaw) -> None:
    """A client may send its first requests without waiting for the session."""
    eager = raw()
    session = eager.connect()
    for number in range(50):
        eager.send(PING, xid=-2)
        eager.send(EXISTS, body("/", False), xid=number + 1)
    replies = [eager.receive().xid for _ in range(100)]
    assert replies == [xid for number in range(50) for xid in (-2, number + 1)]
    assert session.session_id


# -- access ---------------------------------------------------------------------------------------


def user(raw: NewRaw, name: bytes) -> RawClient:
    connection = raw()
    connection.connect()
    assert connection.ask(AUTH, body(0, "digest", name), -4).code == 0
    return connection


def test_digest_acl_admits_only_its_user(raw: NewRaw, path: str) -> None:
    joe, stranger = user(raw, b"joe:secret"), raw()
    stranger.connect()
    node = path + "/private"
    assert joe.ask(CREATE, create_body(node, b"x", ((31, "auth", ""),))).code == 0
    assert joe.ask(GET, body(node, False)).code == 0
    for opcode, request in (
        (GET, body(node, False)),
        (SET, body(node, b"", -1)),
        (CHILDREN, body(node, False)),
        (CREATE, create_body(node + "/x")),
        (GET_ACL, body(node)),
        (SET_ACL, body(node, ((31, "world", "anyone"),), -1)),
    ):
        assert stranger.ask(opcode, request).code == NO_AUTH
    # Deleting requires permission on the parent.
    assert stranger.ask(DELETE, body(node, -1)).code == 0


@pytest.mark.usefixtures("since_3_9")
def test_client_without_read_permission_cannot_learn_whether_a_node_exists(
    raw: NewRaw, path: str
) -> None:
    joe, stranger = user(raw, b"joe:secret"), raw()
    stranger.connect()
    node = path + "/private"
    assert joe.ask(CREATE, create_body(node, b"x", ((31, "auth", ""),))).code == 0
    assert stranger.ask(EXISTS, body(node, False)).code == NO_AUTH
    assert joe.ask(EXISTS, body(node, False)).code == 0


def test_permissions_are_granted_one_by_one(raw: NewRaw, path: str) -> None:
    connection = raw()
    connection.connect()
    node = path + "/read-only"
    connection.ask(CREATE, create_body(node, b"x", ((1, "world", "anyone"),)))
    assert connection.ask(GET, body(node, False)).code == 0
    assert connection.ask(SET, body(node, b"", -1)).code == NO_AUTH
    assert connection.ask(CREATE, create_body(node + "/x")).code == NO_AUTH
    assert connection.ask(SET_ACL, body(node, ((31, "world", "anyone"),), -1)).code == NO_AUTH


def test_reader_of_an_acl_sees_no_password_hash(raw: NewRaw, path: str) -> None:
    joe, reader = user(raw, b"joe:secret"), raw()
    reader.connect()
    node = path + "/shared"
    joe.ask(CREATE, create_body(node, b"", ((31, "auth", ""), (1, "world", "anyone"))))
    assert b"joe:x" in reader.ask(GET_ACL, body(node)).body
    assert b"joe:x" not in joe.ask(GET_ACL, body(node)).body


def test_ip_acl_matches_the_network(raw: NewRaw, path: str) -> None:
    connection = raw()
    connection.connect()
    connection.ask(CREATE, create_body(path + "/near", b"", ((31, "ip", "127.0.0.0/8"),)))
    connection.ask(CREATE, create_body(path + "/far", b"", ((31, "ip", "10.0.0.0/8"),)))
    assert connection.ask(GET, body(path + "/near", False)).code == 0
    assert connection.ask(GET, body(path + "/far", False)).code == NO_AUTH


def test_unknown_scheme_fails_and_closes(raw: NewRaw) -> None:
    connection = raw()
    connection.connect()
    assert connection.ask(AUTH, body(0, "nobody", b"x"), -4).code == AUTH_FAILED
    assert connection.is_closed()


def test_watch_sends_no_event_for_unreadable_nodes(raw: NewRaw, path: str) -> None:
    """CVE-2024-23944."""
    joe, spy = user(raw, b"joe:secret"), raw()
    spy.connect()
    spy.ask(ADD_WATCH, body(path, 1))
    joe.ask(CREATE, create_body(path + "/secret", b"", ((31, "auth", ""),)))
    joe.ask(CREATE, create_body(path + "/open"))
    reply = spy.receive()
    assert (reply.xid, reply.body[12:].decode()) == (-1, path + "/open")


def test_changed_acl_increments_its_version(raw: NewRaw, path: str) -> None:
    connection = raw()
    connection.connect()
    reply = connection.ask(SET_ACL, body(path, ((31, "world", "anyone"),), 0))
    assert reply.code == 0
    assert int.from_bytes(reply.body[40:44], "big") == 1
    assert connection.ask(SET_ACL, body(path, ((31, "world", "anyone"),), 0)).code == BAD_VERSION
