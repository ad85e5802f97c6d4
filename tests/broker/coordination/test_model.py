"""The machine against a tree of plain dictionaries, and replicas against each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.coordination.rig import ALICE, BOB, Rig, create

from kafkaesque.broker.coordination.rules.commands import Check, Delete, Multi, MultiPart, SetData
from kafkaesque.broker.coordination.rules.machine import Machine
from kafkaesque.broker.coordination.rules.vocabulary import Code, CreateMode

SYSTEM = {"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"}


@dataclass
class Plain:
    data: bytes
    owner: int
    version: int = 0
    made: int = 0


@dataclass
class Model:
    """What a tree is, without zxids, times, watches or access."""

    nodes: dict[str, Plain] = field(default_factory=lambda: {p: Plain(b"", 0) for p in SYSTEM})

    def copy(self) -> Model:
        return Model({p: Plain(n.data, n.owner, n.version, n.made) for p, n in self.nodes.items()})

    def children(self, path: str) -> set[str]:
        prefix = path.rstrip("/") + "/"
        return {p for p in self.nodes if p.startswith(prefix) and "/" not in p[len(prefix) :]} - {
            path
        }

    def do(self, part: MultiPart, session: int) -> Code:
        node = self.nodes.get(part.path)
        match part:
            case Check() if node is None:
                return Code.NO_NODE
            case Check():
                return Code.OK if part.version in (-1, node.version) else Code.BAD_VERSION
            case SetData() if node is None:
                return Code.NO_NODE
            case SetData():
                if part.version not in (-1, node.version):
                    return Code.BAD_VERSION
                node.data, node.version = part.data or b"", node.version + 1
                return Code.OK
            case Delete():
                return self._delete(part)
        return self._create(part.path, part.data or b"", CreateMode(part.mode), session)

    def _delete(self, part: Delete) -> Code:
        node = self.nodes.get(part.path)
        if part.path in SYSTEM:
            return Code.BAD_ARGUMENTS
        if node is None:
            return Code.NO_NODE
        if part.version not in (-1, node.version):
            return Code.BAD_VERSION
        if self.children(part.path):
            return Code.NOT_EMPTY
        del self.nodes[part.path]
        return Code.OK

    def _create(self, path: str, data: bytes, mode: CreateMode, session: int) -> Code:
        parent = self.nodes.get(path.rpartition("/")[0] or "/")
        if parent is None:
            return Code.NO_NODE
        if mode.is_sequential:
            path += f"{parent.made:010d}"
        if path in self.nodes:
            return Code.NODE_EXISTS
        if parent.owner:
            return Code.NO_CHILDREN_FOR_EPHEMERALS
        self.nodes[path] = Plain(data, session if mode.is_ephemeral else 0)
        parent.made += 1
        return Code.OK

    def close(self, session: int) -> None:
        self.nodes = {p: n for p, n in self.nodes.items() if n.owner != session}


PATHS = st.sampled_from(["/", "/a", "/b", "/a/a", "/a/b", "/a/a/a", "/zookeeper", "/a/0000000000"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
MODES = st.sampled_from(list(CreateMode)[:4])
PARTS = st.one_of(
    st.builds(create, PATHS, st.binary(max_size=3), MODES),
    st.builds(create, PATHS, st.binary(max_size=3), MODES),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(SetData, PATHS, st.binary(max_size=3), VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
READ_ONLY_BYTES = 8 + len("world" + "anyone")
"""The access list of /zookeeper/config, the only node here with a list of its own."""

STEPS = st.lists(
    st.tuples(
        st.sampled_from([ALICE, BOB]),
        st.one_of(PARTS, PARTS, st.lists(PARTS, max_size=4), st.just("reopen")),
    ),
    max_size=25,
)


def run(rig: Rig, model: Model, session: int, step: object) -> None:
    if step == "reopen":
        rig.close(session)
        rig.open(session)
        model.close(session)
    elif isinstance(step, list):
        trial = model.copy()
        codes = [trial.do(part, session) for part in step]
        outcome = rig.write(Multi(tuple(step)), session)
        failed = next((n for n, code in enumerate(codes) if code is not Code.OK), None)
        if failed is None:
            model.nodes = trial.nodes
            assert [result.code for result in outcome.results] == codes
        else:
            assert outcome.results[failed].code is codes[failed]
    else:
        expected = model.do(step, session)  # type: ignore[arg-type]
        assert rig.write(step, session).code is expected  # type: ignore[arg-type]


@given(STEPS)
@settings(max_examples=300, deadline=None)
def test_tree_matches_the_model(steps: list[tuple[int, object]]) -> None:
    rig, model = Rig(), Model()
    for session, step in steps:
        run(rig, model, session, step)
        tree = rig.machine.tree
        assert {p: (n.data, n.owner, n.version) for p, n in tree.nodes.items()} == {
            p: (n.data, n.owner, n.version) for p, n in model.nodes.items()
        }
        for path in model.nodes:
            prefix = path.rstrip("/") + "/"
            listed = {prefix + name for name in tree.require(path).children}
            assert listed == model.children(path)
        stored = sum(len(p) + len(n.data) for p, n in model.nodes.items())
        assert tree.size_bytes == stored + READ_ONLY_BYTES
        for owner in (ALICE, BOB):
            owned = {p for p, n in model.nodes.items() if n.owner == owner}
            assert set(tree.ephemerals_of(owner)) == owned


@given(STEPS, st.integers(1, 5))
@settings(max_examples=100, deadline=None)
def test_replica_that_starts_from_a_snapshot_ends_the_same(
    steps: list[tuple[int, object]], every: int
) -> None:
    rig, model = Rig(), Model()
    for session, step in steps:
        run(rig, model, session, step)
    replica = Machine()
    for number, (index, command) in enumerate(rig.log):
        if number % every == 0:
            restarted = Machine()
            restarted.restore(replica.snapshot())
            replica = restarted
        replica.apply(index, command)
    assert replica.snapshot() == rig.machine.snapshot()
