from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.gateway.logs import with_log
from tests.waiting import until

from kafkaesque.chat.global_tables import GlobalTables, NameList
from kafkaesque.client.gateway_liveness import GatewayLiveness
from kafkaesque.client.ports import Log, Record, WriterOptions
from kafkaesque.events.chat import CHAT_TOPICS
from kafkaesque.events.gateway import GATEWAY_TOPICS, PRESENCE, Presence, encode_value

names = st.text("abc.-_0", min_size=1, max_size=4)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(names), st.lists(names), st.text("abc*?", max_size=4), names | st.just(""))
def test_page_of_names_equals_a_plain_search(
    put: list[str], removed: list[str], pattern: str, after: str
) -> None:
    import fnmatch

    listed = NameList()
    for name in put:
        listed.put(name)
    for name in removed:
        listed.remove(name)
    kept = sorted(set(put) - set(removed))
    expected = [name for name in kept if fnmatch.fnmatchcase(name, pattern) and name > after]
    assert listed.page(pattern, after, 3) == expected[:3]
    assert len(listed) == len(kept)


def test_user_is_online_while_the_gateway_of_the_last_record_is_alive() -> None:
    async def story(log: Log) -> None:
        await log.admin.ensure_topics([*GATEWAY_TOPICS, *CHAT_TOPICS])
        writer = await log.open_writer(WriterOptions())

        async def connect(user: str, gateway: str) -> None:
            value = encode_value(Presence(gateway, 1, 0))
            await writer.send([Record(PRESENCE.name, user.encode(), value)])

        await connect("ann", "g1")
        await connect("bob", "g2")
        await connect("cat", "g1")
        await writer.send([Record(PRESENCE.name, b"cat", None), Record(PRESENCE.name, b"x", b"{")])
        gateways = GatewayLiveness("", "chat")
        tables = GlobalTables(log, gateways)
        await tables.start()
        assert [tables.is_online(user) for user in ("ann", "bob", "cat")] == [True, True, False]
        gateways.names = frozenset({"g1"})
        assert [tables.is_online(user) for user in ("ann", "bob")] == [True, False]
        await connect("bob", "g1")
        await until(lambda: tables.is_online("bob"))
        tables.check()
        await tables.stop()
        await writer.close()

    with_log(story)
