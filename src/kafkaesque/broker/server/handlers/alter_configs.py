"""AlterConfigs, API key 33: replace all settings of a topic or broker.

v2  flexible

Older than IncrementalAlterConfigs and harder to use well: settings that a request does not name
return to their defaults.
"""

from __future__ import annotations

from kafkaesque.broker.cluster.rules.config_changes import ConfigChange, ConfigOperation
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.config_alterations import Alteration, alter
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


async def alter_configs(
    context: Context, request: AlterConfigsRequest, call: Call
) -> AlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [ConfigChange(item.name, ConfigOperation.SET, item.value) for item in resource.configs],
            replace_all=True,
        )
        for resource in request.resources
    ]
    verdicts = await alter(context, alterations, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                error_code=verdict.code,
                error_message=verdict.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, verdict in zip(request.resources, verdicts, strict=True)
        ]
    )


HANDLER = handler(AlterConfigsRequest, versions=(0, 2), at_controller=True)(alter_configs)
