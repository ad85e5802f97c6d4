"""The checks of `kafkaesque doctor`: this machine and the network between it and a cluster.

`machine` checks versions, limits, the clock and a data directory; `network` checks addresses and ports.
Each check returns or yields a `service.finding.Finding`; `examine` runs them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from kafkaesque.model.address import Address
from kafkaesque.service.finding import Finding
from kafkaesque.up.doctor.machine import (
    examine_clock,
    examine_data,
    examine_limits,
    examine_versions,
)
from kafkaesque.up.doctor.network import (
    examine_address,
    examine_advertised,
    examine_default_ports,
)


def examine(addresses: Sequence[Address], data: Path | None, timeout_s: float) -> Iterator[Finding]:
    """Runs every check; those of a data directory only if `data` is given."""
    for address in addresses:
        finding, answer = examine_address(*address, timeout_s)
        yield finding
        if answer is not None:
            yield from examine_advertised(str(address), answer.brokers, timeout_s)
    yield from examine_default_ports({address.port for address in addresses})
    yield from examine_versions()
    yield from examine_limits()
    yield from examine_clock()
    if data is not None:
        yield from examine_data(data)
