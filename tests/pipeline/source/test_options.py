from __future__ import annotations

from pathlib import Path

import pytest

from kafkaesque import pipeline
from kafkaesque.model.address import Address
from kafkaesque.pipeline.errors import InvalidOption
from kafkaesque.pipeline.source.options import read_options

KAFKA = {"kafka.bootstrap.servers": "a:1,[::1]:2"}


def test_option_names_are_case_insensitive() -> None:
    options = read_options(
        {
            **KAFKA,
            "SUBSCRIBE": "x, y",
            "maxOffsetsPerTrigger": "10",
            "includeHeaders": "true",
            "failOnDataLoss": "false",
            "kafka.isolation.level": "read_committed",
        },
        streaming=True,
    )
    assert options.topics == ("x", "y")
    assert options.rows_max == 10
    assert options.read.with_headers
    assert options.read.committed_only
    assert not options.read.fail_on_data_loss
    assert options.read.cluster.bootstrap == (Address("a", 1), Address("::1", 2))
    assert options.start.word == "latest"


def test_batch_read_starts_at_the_beginning() -> None:
    assert read_options({**KAFKA, "subscribe": "x"}, streaming=False).start.word == "earliest"


INVALID = [
    ({"subscribe": "x"}, "bootstrap.servers is missing"),
    ({**KAFKA}, "exactly one of"),
    ({**KAFKA, "subscribe": "x", "assign": '{"x":[0]}'}, "exactly one of"),
    ({**KAFKA, "subscribe": ","}, "names no topic"),
    ({**KAFKA, "subscribe": "x", "startingOffset": "earliest"}, "no option 'startingoffset'"),
    ({**KAFKA, "subscribe": "x", "endingOffsets": "latest"}, "a stream has no option"),
    ({**KAFKA, "subscribe": "x", "startingOffsets": "yesterday"}, "not JSON like"),
    ({**KAFKA, "subscribe": "x", "maxOffsetsPerTrigger": "0"}, "must be positive"),
    ({**KAFKA, "subscribe": "x", "failOnDataLoss": "maybe"}, "true or false"),
    ({**KAFKA, "assign": "[]"}, "names no partition"),
    ({**KAFKA, "subscribe": "x", "maxTriggerDelay": "soon"}, "not a duration"),
    (
        {**KAFKA, "subscribe": "x", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"},
        "greater",
    ),
    ({"kafka.bootstrap.servers": "nowhere", "subscribe": "x"}, "not a broker address"),
    ({**KAFKA, "subscribe": "x", "kafka.security.protocol": "SASL_SSL"}, "sasl.mechanism"),
    (
        {
            **KAFKA,
            "subscribe": "x",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "GSSAPI",
        },
        "engine=jvm",
    ),
    (
        {
            **KAFKA,
            "subscribe": "x",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.location": "a.jks",
        },
        "not PEM",
    ),
    (
        {
            **KAFKA,
            "subscribe": "x",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
        },
        "a user and a password",
    ),
]


@pytest.mark.parametrize(("given", "text"), INVALID)
def test_invalid_options_of_a_stream_are_rejected(given: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidOption, match=text.replace("(", "\\(")):
        read_options(given, streaming=True)


def test_batch_read_from_latest_is_rejected_because_it_would_be_empty() -> None:
    with pytest.raises(InvalidOption, match="would read nothing"):
        read_options({**KAFKA, "subscribe": "x", "startingOffsets": "latest"}, streaming=False)


def test_pipeline_does_not_read_with_librdkafka() -> None:
    """librdkafka's backoff of one second throttles a fast reader tenfold, and its message objects cost
    more than everything else. The engine has its own Fetch, or uses Spark's connector."""
    package = Path(pipeline.__file__).parent
    sources = {path: path.read_text() for path in package.rglob("*.py")}
    assert [path.name for path, text in sources.items() if "import Consumer" in text] == []
