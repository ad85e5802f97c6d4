"""IncrementalAlterConfigs, API key 44: set, delete, append to or subtract from settings (KIP-339).

v1  flexible
"""

from __future__ import annotations

from kafkaesque.broker.cluster.rules.config_changes import ConfigChange, ConfigOperation
from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.config_alterations import Alteration, alter
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def incremental_alter_configs(
    context: Context, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    alterations = [
        Alteration(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(item.name, ConfigOperation(item.config_operation), item.value)
                for item in resource.configs
            ],
            replace_all=False,
        )
        for resource in request.resources
    ]
    verdicts = await alter(context, alterations, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
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


HANDLER = handler(IncrementalAlterConfigsRequest, versions=(0, 1), at_controller=True)(
    incremental_alter_configs
)
