"""The raw wire protocol: the answer of every operation, and the errors of bad requests."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator

import pytest
from tests.conformance_zookeeper.raw import (
    OPEN,
    Closed,
    Long,
    RawClient,
    Reply,
    body,
    create_body,
    multi_body,
)
from tests.waiting import eventually

from kafkaesque.broker.coordination.rules.jute import JuteReader

NewRaw = Callable[[], RawClient]

(CREATE, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN, SYNC) = range(1, 10)
PING, CHILDREN2, CHECK, MULTI, CREATE2, RECONFIG, CHECK_WATCHES, REMOVE_WATCHES = range(11, 19)
CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 19, 21, 22
AUTH, SET_WATCHES, EPHEMERALS, ALL_CHILDREN, SET_WATCHES2, ADD_WATCH, WHO_AM_I = (
    100, 101, 103, 104, 105, 106, 107,
)  # fmt: skip
CLOSE = -11
MARSHALLING, UNIMPLEMENTED, BAD_ARGUMENTS = -5, -6, -8
NO_NODE, NO_AUTH, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -102, -103, -110, -111
NO_CHILDREN_FOR_EPHEMERALS, INVALID_ACL, AUTH_FAILED, NO_WATCHER = -108, -114, -115, -121
CREATED, DELETED, CHANGED, CHILD = 1, 2, 3, 4


@pytest.fixture
def wire(raw: NewRaw) -> RawClient:
    client = raw()
    client.connect()
    return client


@pytest.fixture
def reaping(reaping_address: str) -> Iterator[RawClient]:
    """The address of a server that checks containers and TTLs often enough for a test."""
    with RawClient(reaping_address) as client:
        client.connect()
        yield client


def stat(data: bytes) -> tuple[int, ...]:
    assert len(data) == 68
    return struct.unpack(">qqqqiiiqiiq", data)


def event(reply: Reply) -> tuple[int, str]:
    assert (reply.xid, reply.code) == (-1, 0)
    reader = reply.reader
    kind, state, path = reader.int32(), reader.int32(), reader.string()
    assert state == 3
    return kind, path


BAD_PATHS = {
    "": BAD_ARGUMENTS,
    "a/b": NO_NODE,
    "/": NODE_EXISTS,
    "{}/x/": NO_NODE,
    "{}/": BAD_ARGUMENTS,
    "{}//x": NO_NODE,
    "{}/.": BAD_ARGUMENTS,
    "{}/\x01": BAD_ARGUMENTS,
    "{}/\x00": BAD_ARGUMENTS,
    "{}/\ue000": BAD_ARGUMENTS,
    "{}/\U0001f600": BAD_ARGUMENTS,
    "{}/no/such": NO_NODE,
}


@pytest.mark.parametrize("bad", BAD_PATHS)
def test_invalid_path_is_refused(wire: RawClient, path: str, bad: str) -> None:
    assert wire.ask(CREATE, create_body(bad.format(path))).code == BAD_PATHS[bad]
    assert wire.ask(EXISTS, body(path, False)).code == 0


def test_relative_name_inside_a_path_is_refused_if_its_parent_is_missing(
    wire: RawClient, path: str
) -> None:
    assert wire.ask(CREATE, create_body(path + "/../x")).code == NO_NODE
    assert wire.ask(SET, body(path + "/../x", b"", -1)).code == BAD_ARGUMENTS


@pytest.mark.parametrize(
    ("acl", "code"),
    [
        ((), INVALID_ACL),
        (((31, "nobody", "knows"),), INVALID_ACL),
        (((31, "world", "someone"),), INVALID_ACL),
        (((31, "digest", "no colon"),), INVALID_ACL),
        (((31, "digest", "a:b:c"),), INVALID_ACL),
        (((31, "ip", "not an address"),), INVALID_ACL),
        (((31, "ip", "1.2.3.4/33"),), INVALID_ACL),
        (((31, "auth", ""),), INVALID_ACL),
        (((31, "ip", "127.0.0.1/8"), (31, "world", "anyone")), 0),
        (((31, "digest", "a:b"), (31, "world", "anyone")), 0),
    ],
)
def test_acl_is_checked_at_creation(wire: RawClient, path: str, acl: object, code: int) -> None:
    assert wire.ask(CREATE, create_body(path + "/acl", b"", acl)).code == code


@pytest.mark.parametrize(
    ("opcode", "request_body", "code"),
    [
        (CREATE, create_body("{}/x", flags=7), BAD_ARGUMENTS),
        (CREATE, create_body("{}/x", flags=-1), BAD_ARGUMENTS),
        (CREATE, create_body("{}/x", flags=5), BAD_ARGUMENTS),
        (CREATE_TTL, body("/ttl", b"", OPEN, 5, Long(0)), BAD_ARGUMENTS),
        (CREATE_TTL, body("/ttl", b"", OPEN, 5, Long(-1)), BAD_ARGUMENTS),
        (CREATE_TTL, body("/ttl", b"", OPEN, 5, Long(1 << 40)), BAD_ARGUMENTS),
        (CREATE_TTL, body("/ttl", b"", OPEN, 0, Long(0)), BAD_ARGUMENTS),
        (DELETE, body("/", -1), BAD_ARGUMENTS),
        (DELETE, body("/zookeeper", -1), BAD_ARGUMENTS),
        (DELETE, body("/zookeeper/quota", -1), BAD_ARGUMENTS),
        (DELETE, body("no-slash", -1), BAD_ARGUMENTS),
        (SET, body("no-slash", b"", -1), BAD_ARGUMENTS),
        (GET, body("no-slash", False), NO_NODE),
        (EXISTS, body("/\x00", False), BAD_ARGUMENTS),
        (GET_ACL, body("/no"), NO_NODE),
        (SET_ACL, body("/no", OPEN, -1), NO_NODE),
        (SET_ACL, body("/", (), -1), INVALID_ACL),
        (SET_ACL, body("/", OPEN, 99), BAD_VERSION),
        (CHILDREN, body("/no", False), NO_NODE),
        (ALL_CHILDREN, body("/no"), NO_NODE),
        (RECONFIG, body("", "", "", Long(-1)), -123),
        (CHECK_WATCHES, body("/", 3), NO_WATCHER),
        (REMOVE_WATCHES, body("/", 3), NO_WATCHER),
        (REMOVE_WATCHES, body("/", 9), MARSHALLING),
        (ADD_WATCH, body("/", 7), MARSHALLING),
        (CREATE, b"", MARSHALLING),
        (CREATE, struct.pack(">i", -7), MARSHALLING),
        (CREATE, struct.pack(">i", 2**31 - 1), MARSHALLING),
        (CREATE, body(None, b"", OPEN, 0), MARSHALLING),
        (EXISTS, b"\x00\x00", MARSHALLING),
        (GET, body(None, False), MARSHALLING),
        (EXISTS, struct.pack(">i", 2) + b"\xff\xfe\x00", NO_NODE),
        (MULTI, multi_body((GET, body("/", False))), MARSHALLING),
        (MULTI, multi_body((CHECK, body("/", -1)))[:-3], MARSHALLING),
    ],
)
def test_bad_request_gets_its_error_and_the_connection_stays_open(
    wire: RawClient, opcode: int, request_body: bytes, code: int
) -> None:
    assert wire.ask(opcode, request_body).code == code
    assert wire.ask(PING, b"", -2).code == 0


@pytest.mark.parametrize("opcode", [0, 10, 99, 9999, -1, -99])
def test_unknown_operation_is_answered_then_the_connection_closed(
    wire: RawClient, opcode: int
) -> None:
    assert wire.ask(opcode, b"").code == UNIMPLEMENTED
    assert wire.is_closed()


@pytest.mark.usefixtures("since_3_9")
def test_check_outside_of_a_multi_is_an_unknown_operation(wire: RawClient) -> None:
    assert wire.ask(CHECK, b"").code == UNIMPLEMENTED
    assert wire.is_closed()


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -5),
        struct.pack(">i", 1 << 20) + b"x",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">i", 4) + b"abcd",
        struct.pack(">i", 0),
    ],
)
def test_malformed_frame_closes_the_connection(wire: RawClient, raw: NewRaw, data: bytes) -> None:
    wire.send_raw(data)
    assert wire.is_closed()
    assert raw().connect().session_id != 0


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", 4) + b"abcd"])
def test_client_without_a_connect_request_is_disconnected(raw: NewRaw, data: bytes) -> None:
    stranger = raw()
    stranger.send_raw(data)
    assert stranger.is_closed()


def test_create_answers_with_path_and_create2_with_stat_too(wire: RawClient, path: str) -> None:
    assert wire.ask(CREATE, create_body(path + "/a")).reader.string() == path + "/a"
    reply = wire.ask(CREATE2, create_body(path + "/b", b"xy"))
    reader = reply.reader
    assert reader.string() == path + "/b"
    found = stat(reply.body[-68:])
    assert (found[0], found[8]) == (reply.zxid, 2)


def test_null_data_stays_null(wire: RawClient, path: str) -> None:
    wire.ask(CREATE, create_body(path + "/null", None))
    assert wire.ask(GET, body(path + "/null", False)).reader.buffer() is None
    wire.ask(SET, body(path + "/null", b"", -1))
    assert wire.ask(GET, body(path + "/null", False)).reader.buffer() == b""


def test_empty_path_reads_the_root(wire: RawClient) -> None:
    assert "zookeeper" in wire.ask(CHILDREN, body("", False)).body.decode("latin-1")
    assert wire.ask(EXISTS, body("", False)).code == 0


def test_container_is_removed_after_its_last_child(reaping: RawClient, reaping_path: str) -> None:
    wire, path = reaping, reaping_path
    box = path + "/box"
    reply = wire.ask(CREATE_CONTAINER, create_body(box, flags=4))
    assert stat(reply.body[-68:])[7] == 0
    wire.ask(CREATE, create_body(path + "/plain"))
    for parent in (box, path + "/plain"):
        wire.ask(CREATE, create_body(parent + "/child"))
        wire.ask(DELETE, body(parent + "/child", -1))
    eventually(lambda: wire.ask(EXISTS, body(box, False)).code == NO_NODE)
    assert wire.ask(EXISTS, body(path + "/plain", False)).code == 0


def test_node_with_a_ttl_is_removed_if_it_is_not_modified(
    reaping: RawClient, reaping_path: str
) -> None:
    wire, path = reaping, reaping_path
    reply = wire.ask(CREATE_TTL, body(path + "/short", b"", OPEN, 5, Long(200)))
    assert stat(reply.body[-68:])[7] == 0
    name = wire.ask(
        CREATE_TTL, body(path + "/long-", b"", OPEN, 6, Long(3_600_000))
    ).reader.string()
    assert name == path + "/long-0000000001"
    eventually(lambda: wire.ask(EXISTS, body(path + "/short", False)).code == NO_NODE)
    assert wire.ask(EXISTS, body(name, False)).code == 0


def test_multi_has_an_answer_for_each_part(wire: RawClient, path: str) -> None:
    reply = wire.ask(
        MULTI,
        multi_body(
            (CREATE, create_body(path + "/m")),
            (SET, body(path + "/m", b"1", 0)),
            (CHECK, body(path + "/m", 1)),
            (DELETE, body(path + "/m", -1)),
        ),
    )
    assert reply.code == 0
    reader = reply.reader
    assert part(reader) == (CREATE, False, 0)
    assert reader.string() == path + "/m"
    assert part(reader) == (SET, False, 0)
    skip_stat(reader)
    assert part(reader) == (CHECK, False, 0)
    assert part(reader) == (DELETE, False, 0)
    assert part(reader) == (-1, True, -1)
    assert reader.remaining_bytes == 0


@pytest.mark.usefixtures("since_3_9")
def test_create2_in_a_multi_returns_path_and_stat(wire: RawClient, path: str) -> None:
    reader = wire.ask(MULTI, multi_body((CREATE2, create_body(path + "/n")))).reader
    assert part(reader) == (CREATE2, False, 0)
    assert reader.string() == path + "/n"
    skip_stat(reader)
    assert part(reader) == (-1, True, -1)


def part(reader: JuteReader) -> tuple[int, bool, int]:
    """The header of each part of the answer to a multi."""
    return reader.int32(), reader.boolean(), reader.int32()


def skip_stat(reader: JuteReader) -> None:
    for _ in range(17):
        reader.int32()


def test_empty_multi_succeeds(wire: RawClient) -> None:
    reply = wire.ask(MULTI, multi_body())
    assert (reply.code, reply.body) == (0, struct.pack(">i?i", -1, True, -1))


def test_failed_multi_has_no_error_in_the_reply_header(wire: RawClient, path: str) -> None:
    parts = ((CHECK, body(path, -1)), (CHECK, body(path, 9)), (SET, body(path, b"", -1)))
    reply = wire.ask(MULTI, multi_body(*parts))
    assert reply.code == 0
    errors = [struct.unpack(">i?ii", reply.body[at : at + 13]) for at in (0, 13, 26)]
    assert errors == [(-1, False, 0, 0), (-1, False, -103, -103), (-1, False, -2, -2)]


def test_multi_read_answers_each_part_or_its_error(wire: RawClient, path: str) -> None:
    wire.ask(CREATE, create_body(path + "/kid", b"data"))
    parts = (
        (GET, body(path + "/kid", False)),
        (CHILDREN, body(path, False)),
        (GET, body("/no", False)),
    )
    reader = wire.ask(MULTI_READ, multi_body(*parts)).reader
    assert (reader.int32(), reader.boolean(), reader.int32()) == (GET, False, 0)
    assert reader.buffer() == b"data"
    for _ in range(17):
        reader.int32()
    assert (reader.int32(), reader.boolean(), reader.int32()) == (CHILDREN, False, 0)
    assert reader.vector(reader.string, 4) == ["kid"]
    assert (reader.int32(), reader.boolean(), reader.int32(), reader.int32()) == (
        -1, False, NO_NODE, NO_NODE,
    )  # fmt: skip


def test_ephemerals_and_all_children_are_counted(wire: RawClient, path: str) -> None:
    for name in ("/a", "/a/b", "/a/b/c"):
        wire.ask(CREATE, create_body(path + name))
    wire.ask(CREATE, create_body(path + "/a/e", flags=1))
    assert wire.ask(ALL_CHILDREN, body(path)).reader.int32() == 4
    assert wire.ask(ALL_CHILDREN, body(path + "/a/b")).reader.int32() == 1
    reader = wire.ask(EPHEMERALS, body(path)).reader
    assert reader.vector(reader.string, 4) == [path + "/a/e"]
    reader = wire.ask(EPHEMERALS, body("/elsewhere")).reader
    assert reader.vector(reader.string, 4) == []


def test_who_am_i_names_address_and_users(wire: RawClient) -> None:
    assert wire.ask(AUTH, body(0, "digest", b"joe:secret"), -4).code == 0
    reader = wire.ask(WHO_AM_I).reader
    known = reader.vector(lambda: (reader.string(), reader.string()), 8)
    assert sorted(known) == [("digest", "joe"), ("ip", "127.0.0.1")]


def test_persistent_watch_fires_repeatedly(wire: RawClient, raw: NewRaw, path: str) -> None:
    writer = raw()
    writer.connect()
    assert wire.ask(ADD_WATCH, body(path, 0)).body == bytes(4)
    writer.ask(SET, body(path, b"1", -1))
    writer.ask(SET, body(path, b"2", -1))
    writer.ask(CREATE, create_body(path + "/kid"))
    writer.ask(SET, body(path + "/kid", b"", -1))
    writer.ask(DELETE, body(path + "/kid", -1))
    received = [event(wire.receive()) for _ in range(4)]
    assert received == [(CHANGED, path), (CHANGED, path), (CHILD, path), (CHILD, path)]
    assert wire.ask(REMOVE_WATCHES, body(path, 3)).code == 0
    assert wire.ask(REMOVE_WATCHES, body(path, 3)).code == NO_WATCHER
    writer.ask(SET, body(path, b"3", -1))
    assert wire.ask(SYNC, body(path)).code == 0


def test_recursive_watch_fires_for_descendants_and_not_for_child_lists(
    wire: RawClient, raw: NewRaw, path: str
) -> None:
    writer = raw()
    writer.connect()
    wire.ask(ADD_WATCH, body(path, 1))
    writer.ask(CREATE, create_body(path + "/a"))
    writer.ask(CREATE, create_body(path + "/a/b"))
    writer.ask(SET, body(path + "/a/b", b"1", -1))
    writer.ask(DELETE, body(path + "/a/b", -1))
    writer.ask(SET, body(path, b"1", -1))
    assert [event(wire.receive()) for _ in range(5)] == [
        (CREATED, path + "/a"),
        (CREATED, path + "/a/b"),
        (CHANGED, path + "/a/b"),
        (DELETED, path + "/a/b"),
        (CHANGED, path),
    ]


@pytest.mark.usefixtures("since_3_9")
def test_watches_are_checked_and_removed_by_their_kind(wire: RawClient, path: str) -> None:
    def kinds() -> set[int]:
        return {kind for kind in range(1, 6) if not wire.ask(CHECK_WATCHES, body(path, kind)).code}

    wire.ask(GET, body(path, True))
    assert kinds() == {2, 3}
    wire.ask(CHILDREN, body(path, True))
    wire.ask(ADD_WATCH, body(path, 0))
    wire.ask(ADD_WATCH, body(path, 1))
    assert kinds() == {1, 2, 3, 4, 5}
    left = {1, 2, 3, 4, 5}
    for kind in (1, 4, 2):
        assert wire.ask(REMOVE_WATCHES, body(path, kind)).code == 0
        left.discard(kind)
        assert kinds() == left
    assert wire.ask(REMOVE_WATCHES, body(path, 3)).code == 0
    assert kinds() == set()


@pytest.mark.usefixtures("since_3_9")
def test_several_watches_on_one_path_give_one_event(wire: RawClient, path: str) -> None:
    wire.ask(ADD_WATCH, body(path, 0))
    wire.ask(ADD_WATCH, body(path, 1))
    wire.ask(GET, body(path, True))
    for number in range(2):
        sent = wire.send(SET, body(path, b"x", -1))
        assert event(wire.receive()) == (CHANGED, path), number
        assert wire.receive().xid == sent


def test_event_of_an_own_change_arrives_before_its_answer(wire: RawClient, path: str) -> None:
    wire.ask(GET, body(path, True))
    sent = wire.send(SET, body(path, b"x", -1))
    assert event(wire.receive()) == (CHANGED, path)
    assert wire.receive().xid == sent


def test_set_watches_sends_missed_events_and_keeps_the_rest(
    wire: RawClient, raw: NewRaw, path: str
) -> None:
    for name in ("changed", "deleted", "quiet", "parent"):
        wire.ask(CREATE, create_body(f"{path}/{name}"))
    since = wire.ask(CREATE, create_body(path + "/last")).zxid
    wire.ask(SET, body(path + "/changed", b"1", -1))
    wire.ask(DELETE, body(path + "/deleted", -1))
    wire.ask(CREATE, create_body(path + "/created"))
    wire.ask(CREATE, create_body(path + "/parent/kid"))
    again = raw()
    again.connect()
    data = [path + "/changed", path + "/deleted", path + "/quiet"]
    exist = [path + "/created", path + "/absent"]
    child = [path + "/parent", path + "/quiet"]
    again.send(SET_WATCHES2, body(Long(since), data, exist, child, [path], []), xid=-8)
    received = [event(again.receive()) for _ in range(4)]
    assert received == [
        (CHANGED, path + "/changed"),
        (DELETED, path + "/deleted"),
        (CREATED, path + "/created"),
        (CHILD, path + "/parent"),
    ]
    reply = again.receive()
    assert (reply.xid, reply.code, reply.body) == (-8, 0, b"")
    wire.ask(SET, body(path + "/quiet", b"1", -1))
    wire.ask(CREATE, create_body(path + "/absent"))
    assert [event(again.receive()) for _ in range(3)] == [
        (CHANGED, path + "/quiet"),
        (CREATED, path + "/absent"),
        (CHILD, path),
    ]


def test_session_flood_from_one_host_is_cut_off(raw: NewRaw, address: str) -> None:
    """maxClientCnxns: connections within the limit are served, others closed, and the server stays up."""
    opened = []
    refused = 0
    for _ in range(70):
        try:
            connection = raw()
            connection.connect()
            opened.append(connection)
        except (Closed, OSError):
            refused += 1
    assert refused >= 5
    assert opened[-1].ask(PING, b"", -2).code == 0
    for connection in opened:
        connection.close()

    def is_free() -> bool:
        with RawClient(address) as connection:
            try:
                return connection.connect().session_id != 0
            except (Closed, OSError):
                return False

    eventually(is_free)


@pytest.mark.parametrize(
    ("word", "start"),
    [
        (b"ruok", b"imok"),
        (b"srvr", b"Zookeeper version: 3."),
        (b"mntr", b"zk_version\t3."),
        (b"wchp", b"wchp is not executed because it is not in the whitelist."),
    ],
)
def test_four_letter_words(raw: NewRaw, word: bytes, start: bytes) -> None:
    connection = raw()
    connection.send_raw(word)
    assert connection.read_all().startswith(start)


def test_corpus_of_broken_requests_never_stops_the_server(
    wire: RawClient, address: str, path: str
) -> None:
    """Every prefix of a valid request, and every byte of its header and lengths flipped."""
    whole = struct.pack(">ii", 1, CREATE) + create_body(path + "/fuzz", b"data")
    broken = [whole[:size] for size in range(0, len(whole), 3)]
    broken += [
        whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(0, len(whole), 2)
    ]
    for frame in broken:
        with RawClient(address) as one:
            one.connect()
            one.send_frame(frame)
            with contextlib.suppress(ConnectionError):
                one.send(CLOSE)
            one.read_all()
    assert wire.ask(EXISTS, body(path, False)).code == 0
