"""Changes of a topic's or a broker's settings, shared by AlterConfigs and IncrementalAlterConfigs.

Each resource is changed atomically and independently of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafkaesque.broker.cluster.rules.config_changes import ConfigChange
from kafkaesque.broker.cluster.rules.controller import Controller, Decision, check_topic_name
from kafkaesque.broker.server.config_view import ResourceType
from kafkaesque.broker.server.context import Context
from kafkaesque.model.errors import (
    ErrorCode,
    InvalidRequest,
    KafkaError,
    UnknownTopicOrPartition,
)
from kafkaesque.model.ids import NodeId


@dataclass(frozen=True, slots=True)
class Alteration:
    """Changes of one resource. With `replace_all`, settings that are not named return to their
    defaults."""

    resource_type: int
    resource_name: str
    changes: Sequence[ConfigChange]
    replace_all: bool


class AlterationResult(NamedTuple):
    """The result for one resource. The message is None on success."""

    code: ErrorCode
    message: str | None


async def alter(
    context: Context, alterations: Sequence[Alteration], *, validate_only: bool
) -> list[AlterationResult]:
    """Returns one verdict for each alteration, in order."""
    counts = Counter((item.resource_type, item.resource_name) for item in alterations)
    verdicts = []
    for item in alterations:
        try:
            if counts[item.resource_type, item.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            await _alter_one(context, item, validate_only=validate_only)
        except KafkaError as error:
            verdicts.append(AlterationResult(error.code, str(error)))
        else:
            verdicts.append(AlterationResult(ErrorCode.NONE, None))
    return verdicts


async def _alter_one(context: Context, item: Alteration, *, validate_only: bool) -> None:
    def operation(controller: Controller) -> Decision[None]:
        decision = _decide(controller, item)
        return decision.dry() if validate_only else decision

    await context.cluster.submit(operation)


def _decide(controller: Controller, item: Alteration) -> Decision[None]:
    name = item.resource_name
    if item.resource_type == ResourceType.TOPIC:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        check_topic_name(name)
        topic = controller.tables.by_name.get(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"The topic '{name}' does not exist.")
        return controller.change_topic_configs(topic, item.changes, replace_all=item.replace_all)
    if item.resource_type == ResourceType.BROKER:
        node_id = _node_id(name, controller) if name else None
        return controller.change_broker_configs(node_id, item.changes, replace_all=item.replace_all)
    raise InvalidRequest(f"Unknown resource type {item.resource_type}")


def _node_id(name: str, controller: Controller) -> NodeId:
    try:
        given = int(name)
    except ValueError:
        raise InvalidRequest(f"Node id must be an integer, but it is: {name}") from None
    if given not in controller.tables.brokers:
        expected = controller.settings.static.node_id
        raise InvalidRequest(f"Unexpected broker id, expected {expected}, but received {name}")
    return NodeId(given)
