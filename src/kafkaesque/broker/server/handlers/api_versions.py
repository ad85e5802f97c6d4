"""ApiVersions, API key 18: the API versions of this broker, computed from its handlers.

v1  throttle time
v3  flexible; the client names its software (KIP-511); features (KIP-584)
v4  features may have a minimum of 0

A client sends this before it has seen our versions, so the answer to an unknown version is one that
every client can decode.
"""

from __future__ import annotations

import re
from typing import Final

from kafkaesque.broker.server.call import Call
from kafkaesque.broker.server.context import Context
from kafkaesque.broker.server.handler import handler
from kafkaesque.broker.server.stats import BrokerStats
from kafkaesque.broker.transactions.types import NEW_FLOW
from kafkaesque.model.errors import ErrorCode
from kafkaesque.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_KINDS_MAX: Final = 256
"""Distinct (name, version) pairs that are counted. Limited, so that invented names cannot make the
table grow."""
OTHER_SOFTWARE: Final = ("other", "other")
_SOFTWARE_LENGTH_MAX: Final = 100
_SOFTWARE_SINCE: Final = 3
_ZERO_SINCE: Final = 4
TRANSACTION_FEATURE: Final = "transaction.version"
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def api_versions(context: Context, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= _SOFTWARE_SINCE:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST, api_keys=[])
        _count(context.stats, name[:_SOFTWARE_LENGTH_MAX], version[:_SOFTWARE_LENGTH_MAX])
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in context.api_ranges()
        ],
        # A feature with a minimum of 0 must not be named before v4, or clients reject the answer.
        supported_features=[
            SupportedFeatureKey(name=TRANSACTION_FEATURE, min_version=0, max_version=NEW_FLOW)
        ]
        if call.version >= _ZERO_SINCE
        else [],
        finalized_features_epoch=0,
        finalized_features=[
            FinalizedFeatureKey(
                name=TRANSACTION_FEATURE, max_version_level=NEW_FLOW, min_version_level=NEW_FLOW
            )
        ],
    )


def unsupported_version(context: Context) -> ApiVersionsResponse:
    """Returns the answer to an ApiVersions request of an unknown version; sent as version 0
    (KIP-511)."""
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            ApiVersion(api_key=key, min_version=low, max_version=high)
            for key, low, high in context.api_ranges()
            if key == ApiVersionsRequest.API_KEY
        ],
    )


def _count(stats: BrokerStats, name: str, version: str) -> None:
    software = (name, version)
    if software not in stats.clients and len(stats.clients) >= SOFTWARE_KINDS_MAX:
        software = OTHER_SOFTWARE
    stats.clients[software] = stats.clients.get(software, 0) + 1


HANDLER = handler(ApiVersionsRequest, versions=(0, 4))(api_versions)
