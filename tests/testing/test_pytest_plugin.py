"""The plugin as users see it: small test files, run by pytest inside pytest."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Imported here: pytester unloads modules that an inner run imported, and extension modules cannot be
# loaded twice.
import kafkaesque.broker.node
import kafkaesque.testing.broker
import kafkaesque.testing.client
import kafkaesque.testing.cluster
import kafkaesque.testing.namespace  # noqa: F401

pytest_plugins = ["pytester"]

RUN = ("-p", "kafkaesque", "-p", "no:cacheprovider", "-W", "error", "--strict-markers")


def test_tests_share_a_broker_but_no_topics(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest

        seen = set()

        @pytest.mark.parametrize("number", range(3))
        def test_round_trip(kafkaesque, kafkaesque_broker, number):
            assert kafkaesque.broker is kafkaesque_broker
            assert kafkaesque.bootstrap_servers == kafkaesque_broker.bootstrap_servers
            topic = kafkaesque.topic("orders", partitions=2)
            seen.add((topic, kafkaesque.group("g"), kafkaesque.bootstrap_servers))
            kafkaesque.produce(topic, [("k", str(number))])
            kafkaesque.expect(topic, [("k", str(number))])

        def test_names_were_different_and_the_broker_the_same():
            topics, groups, brokers = map(set, zip(*seen))
            assert (len(topics), len(groups), len(brokers)) == (3, 3, 1)
        """
    )
    pytester.runpytest_inprocess(*RUN).assert_outcomes(passed=4)


def test_failing_expectation_shows_the_line_of_the_test_and_the_difference(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        """
        def test_totals(kafkaesque):
            topic = kafkaesque.topic("totals")
            kafkaesque.produce(topic, [("alice", "1"), ("bob", "3")])
            kafkaesque.expect(topic, [("alice", "1"), ("bob", "2")], within=0.2)
        """
    )
    result = pytester.runpytest_inprocess(*RUN)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            '>*kafkaesque.expect(topic, [[]("alice", "1"), ("bob", "2")[]], within=0.2)',
            "E*topic totals.test_totals-*: 1 missing, 1 unexpected after 0.2 s",
            "E*    key='alice' value='1' (partition 0, offset 0)",
            "E*  - key='bob' value='2'",
            "E*  + key='bob' value='3' (partition 0, offset 1)",
        ]
    )
    result.stdout.no_fnmatch_line("*namespace.py*")


def test_marked_test_has_its_own_broker(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pytest
        from kafkaesque.testing import ManualClock

        @pytest.mark.kafkaesque(partitions=4, settings={"auto.create.topics.enable": False})
        def test_marked(kafkaesque, kafkaesque_broker):
            assert kafkaesque.broker is not kafkaesque_broker
            topic = kafkaesque.topic("t")
            assert kafkaesque.produce(topic, [{"value": "a", "partition": 3}])[0].partition == 3
            assert kafkaesque.broker.settings["auto.create.topics.enable"] is False

        @pytest.mark.kafkaesque(clock=ManualClock())
        def test_retention(kafkaesque):
            topic = kafkaesque.topic("t", retention_ms=60_000)
            kafkaesque.produce(topic, ["old"])
            kafkaesque.broker.clock.advance(3600)
            kafkaesque.broker.run_maintenance()
            now_ms = kafkaesque.broker.clock.wall_ms()
            kafkaesque.produce(topic, [{"value": "new", "timestamp": now_ms}])
            kafkaesque.expect(topic, ["new"])
        """
    )
    pytester.runpytest_inprocess(*RUN).assert_outcomes(passed=2)


def test_cluster_is_shared_and_repaired_after_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        seen = []

        def test_broken(kafkaesque_cluster):
            seen.append(kafkaesque_cluster)
            kafkaesque_cluster.pause(0)
            kafkaesque_cluster.kill(1)

        def test_whole(kafkaesque_cluster):
            assert seen == [kafkaesque_cluster]
            assert kafkaesque_cluster.running == [0, 1, 2]
            kafkaesque_cluster.wait_until_joined(within=0)
        """
    )
    pytester.runpytest_inprocess(*RUN).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("marker", "message"),
    [
        ("partition=4", "*takes partitions=, settings= and clock=, not*partition*"),
        ("4", "*takes partitions=, settings= and clock=, not*4*"),
        ("settings={'no.such': 1}", "*BrokerFailed: *Unknown broker setting 'no.such'*"),
    ],
)
def test_wrong_marker_is_explained(pytester: pytest.Pytester, marker: str, message: str) -> None:
    pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.kafkaesque({marker})
        def test_marked(kafkaesque):
            pass
        """
    )
    result = pytester.runpytest_inprocess(*RUN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([message])


def test_settings_of_the_shared_broker_come_from_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini(
        """
        [pytest]
        kafkaesque_settings =
            num.partitions = 3
            message.max.bytes=1000
        """
    )
    pytester.makepyfile(
        """
        def test_it(kafkaesque):
            topic = kafkaesque.topic("t")
            assert kafkaesque.produce(topic, [{"value": "a", "partition": 2}])
        """
    )
    pytester.runpytest_inprocess(*RUN).assert_outcomes(passed=1)


def test_ini_line_without_a_value_is_explained(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nkafkaesque_settings = num.partitions")
    pytester.makepyfile("def test_it(kafkaesque): pass")
    result = pytester.runpytest_inprocess(*RUN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafkaesque_settings: expected name=value, not 'num.partitions'"])


def test_workers_of_xdist_have_a_broker_each(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(kafkaesque, number):
            topic = kafkaesque.topic("t")
            kafkaesque.produce(topic, ["a"])
            kafkaesque.expect(topic, ["a"])
            with open(os.environ["SEEN"], "a") as seen:
                print(os.environ["PYTEST_XDIST_WORKER"], kafkaesque.bootstrap_servers, file=seen)
        """
    )
    seen = pytester.path / "seen"
    pytester._monkeypatch.setenv("SEEN", str(seen))
    pytester.runpytest_subprocess(*RUN, "-n", "2", "--dist", "each").assert_outcomes(passed=8)
    rows = {tuple(line.split()) for line in seen.read_text().splitlines()}
    assert len(rows) == 2
    assert len({address for _, address in rows}) == 2


def test_run_without_our_fixtures_imports_no_broker_and_no_client() -> None:
    program = (
        "import sys; import kafkaesque.testing.pytest_plugin as plugin; "
        "print(sorted(name for name in sys.modules if name.startswith(('kafkaesque', 'confluent')))); "
        "print('asyncio' in sys.modules)"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert run.stdout.splitlines() == [
        "['kafkaesque', 'kafkaesque.compiled', 'kafkaesque.testing', 'kafkaesque.testing.pytest_plugin']",
        "False",
    ]
