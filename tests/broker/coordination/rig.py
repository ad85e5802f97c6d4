"""A coordination state machine for tests: two open sessions, writes with one call, automatic zxids."""

from __future__ import annotations

from kafkaesque.broker.coordination.rules.acl import OPEN, Acl, AuthIdentity
from kafkaesque.broker.coordination.rules.commands import (
    AttachSession,
    CloseSession,
    Command,
    Create,
    OpenSession,
    Operation,
    WriteCommand,
    encode_command,
)
from kafkaesque.broker.coordination.rules.machine import ApplyResult, Machine
from kafkaesque.broker.coordination.rules.vocabulary import CreateMode

ALICE, BOB = 101, 102
PASSWORD = b"p" * 16


class Rig:
    """Applies commands one after the other. The sessions ALICE and BOB are open from the start."""

    def __init__(self, machine: Machine | None = None) -> None:
        self.machine = machine or Machine()
        self.log: list[tuple[int, bytes]] = []
        self.sequences: dict[int, int] = {}
        self.now_ms = 1000
        for session in (ALICE, BOB):
            self.open(session)

    def apply(self, command: Command) -> ApplyResult:
        data = encode_command(command)
        index = self.machine.zxid + 1
        self.log.append((index, data))
        return self.machine.apply(index, data)

    def open(self, session: int, timeout_ms: int = 10_000) -> ApplyResult:
        self.sequences[session] = 0
        return self.apply(OpenSession(session, PASSWORD, timeout_ms, owner=session))

    def attach(self, session: int, owner: int, password: bytes = PASSWORD) -> ApplyResult:
        return self.apply(AttachSession(session, password, 10_000, owner))

    def close(self, session: int) -> ApplyResult:
        return self.apply(CloseSession(session, session))

    def write(
        self, operation: Operation, session: int = ALICE, identities: tuple[AuthIdentity, ...] = ()
    ) -> ApplyResult:
        sequence = self.sequences[session]
        outcome = self.apply(
            WriteCommand(session, session, sequence, self.now_ms, identities, operation)
        )
        self.sequences[session] += 1
        return outcome


def create(
    path: str,
    data: bytes | None = b"",
    mode: CreateMode = CreateMode.PERSISTENT,
    acl: tuple[Acl, ...] = OPEN,
) -> Create:
    return Create(path, data, acl, int(mode))
