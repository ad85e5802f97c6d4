"""A consume-transform-produce loop with Java's client, as in its documentation, read_committed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import pytest
from tests.conformance.clients import Client, Message
from tests.conformance.clients.java import JavaClient
from tests.conformance.conftest import Topics
from tests.conformance.transactional import finish

COUNT = 14
"""Inputs per partition: with seven per transaction, enough for some commits between others."""


@pytest.mark.parametrize("client", ["java-4.3.0", "java-3.9.0"], indirect=True)
def test_every_input_is_in_the_output_once_despite_aborted_and_open_transactions(
    client: Client, topics: Topics, group: str
) -> None:
    assert isinstance(client, JavaClient)
    program = client.program
    source, target = topics.create(partitions=2), topics.create(partitions=2)
    inputs = {partition: [b"%d-%d" % (partition, n) for n in range(COUNT)] for partition in (0, 1)}
    for partition, values in inputs.items():
        client.produce(source, [Message(value, partition=partition) for value in values])
    job = {
        "transactional_id": f"tx-{uuid.uuid4().hex}",
        "timeout_ms": 60_000,
        "group": group,
        "source": source,
        "target": target,
        "count": 2 * COUNT,
    }

    def copy(**extra: int) -> bool:
        answer = program.call("txn_copy", **job, **extra)
        assert isinstance(answer, bool)
        return answer

    assert copy(abort=2, crash=3) is False
    assert copy(abort=1) is True
    outputs: Mapping[int, list[bytes]] = {n: finish(client, target, n) for n in inputs}
    assert outputs == {n: [b"made of " + value for value in inputs[n]] for n in inputs}
