"""Agents whose snapshots are no tables of their flow: no agent stops for them, they are left out by name, and
the others' windows go on (``agents.committing.opening``). The ledger of chaos looks on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pytest

from elf.batch import decode, encode
from elf.fields import replace
from elf.job import events as was
from elf.job.effects import Effect
from elf.job.messages.groups import SubscribeJob
from elf.job.rollup.root import Root
from elf.job.rollup.sender import Sender
from elf.job.snapshots import Early, Sealed
from elf.job.spec import Flow, JobSpec
from elf.ql.plan import Plan
from elf.wire.clients import Execute, Reply, WindowResult
from lab.chaos.agent import SimAgent
from lab.chaos.books import us_of
from lab.chaos.engine import plan
from lab.chaos.jobs import query_of
from lab.chaos.ledger import Ledger
from lab.chaos.world import World
from tests.support.histories import settled
from tests.support.long import cases

AGENTS = 6
Spoil = Callable[[bytes], bytes]


def garbage(data: bytes) -> bytes:
    return b"these bytes are no table"


def cut_short(data: bytes) -> bytes:
    return data[: len(data) // 2] + data[-8:]


def other_names(data: bytes) -> bytes:
    table = decode(data)
    return encode(table.rename_columns([f"_{name}" for name in table.column_names]))


def other_types(data: bytes) -> bytes:
    """Keys that are numbers, or counts that are doubles: they would even merge with each other."""
    table = decode(data)
    place = table.num_columns - 1 if "k0" not in table.column_names else table.column_names.index("k0")
    column = pa.array(np.arange(table.num_rows) + 0.5)
    return encode(table.set_column(place, table.column_names[place], column))


QUERIES = {kind: query_of(kind) for kind in ("wait", "leap", "first", "mirror", "late", "trees")}
SPOILS: tuple[Spoil, ...] = (garbage, cut_short, other_names, other_types)


class Fleet:
    """Agents with one job. ``bad`` are to seal, keep and send what is spoilt: payloads, or
    ``counter_tables``."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        spoil: Spoil,
        query: Plan | None = None,
        *,
        bad: int = 1,
        counter_tables: bool = False,
        seed: int = 5,
    ) -> None:
        self.ledger = Ledger()
        self.world = World(seed, AGENTS, ledger=self.ledger)
        self.bad: list[SimAgent] = []
        self._patch(monkeypatch, spoil, counter_tables)
        self.world.start_all()
        self.until = self.world.now + 22_000
        for agent in self.world.agents:
            self.world.write(agent, self.until, rate_ms=150)
        self.spec: JobSpec = self.world.create(1, query or plan(2))
        job_groups = {flow.leader for flow in self.spec.flows} | {self.spec.leader}
        self.bad += [agent for agent in self.world.agents if agent.address not in job_groups][:bad]

    def _patch(self, monkeypatch: pytest.MonkeyPatch, spoil: Spoil, counter_tables: bool) -> None:
        sealed, fetched = Sender.sealed, Sender.fetched

        def is_bad(sender: Sender) -> bool:
            return any(agent.node.sender is sender for agent in self.bad)

        def spoilt(counters: bytes, payload: bytes) -> tuple[bytes, bytes]:
            if counter_tables:
                return (spoil(counters) if counters else counters), payload
            return counters, (spoil(payload) if payload else payload)

        def seals(sender: Sender, one: Sealed, now_ms: int) -> list[Effect]:
            if is_bad(sender):
                counters, payload = spoilt(one.counters, one.payload)
                one = replace(one, counters=counters, payload=payload)
            return sealed(sender, one, now_ms)

        def fetches(sender: Sender, flow: Flow, snapshots: Iterable[Sealed]) -> list[Effect]:
            if is_bad(sender):
                both = ((one, spoilt(one.counters, one.payload)) for one in snapshots)
                snapshots = [
                    replace(one, counters=counters, payload=payload) for one, (counters, payload) in both
                ]
            return fetched(sender, flow, snapshots)

        monkeypatch.setattr(Sender, "sealed", seals)
        monkeypatch.setattr(Sender, "fetched", fetches)

    def root(self) -> Root:
        root = self.world.leader(self.spec).node.job_groups.roots.get(self.spec.flows[0].uid)
        assert root is not None
        return root

    def check(self, least: int = 6) -> None:
        """All live; windows are exact of those they have; the good are in all of them, the bad in none that
        they have rows of."""
        assert all(agent.up for agent in self.world.agents)
        names = {f"a{agent.index}" for agent in self.bad}
        waited = tuple(f"only for {name}" for name in names)
        assert [one for one in self.ledger.findings if not one.text.endswith(waited)] == [], "in vain"
        windows = settled(self.world, self.spec, self.until)
        assert len(windows) >= least
        for start, (_, counts, status) in windows.items():
            truth = self.world.truth(self.spec, start, status["missing"])
            assert counts.items() <= truth.items(), (start, status)
            assert len(counts) == len(truth) or self.spec.plan.limit, (start, status)
        steady = [(counts, status) for _, (_, counts, status) in sorted(windows.items())][2:]
        if self.spec.plan.limit:  # of whom no group comes near the first there is nothing to spoil
            whole = [one for one in steady if not one[1]["missing"]]
            assert len(whole) < len(steady) / 2
            for counts, status in whole:
                truth = self.world.truth(self.spec, us_of(status["window_start"]))
                assert {*counts.values()} == {max(truth.values())}, status
            steady = [one for one in steady if one not in whole]
        assert [set(status["missing"]) for _, status in steady] == [names] * len(steady)
        assert {(s["expected"], s["reported"]) for _, s in steady} == {(AGENTS, AGENTS - len(names))}


@pytest.mark.parametrize(
    ("spoil", "counter_tables"),
    [(spoil, of) for n, spoil in enumerate(SPOILS) for of in cases((n % 2 == 0,), (False, True))],
)
def test_who_sends_no_tables_is_missing_and_the_others_go_on(
    spoil: Spoil, counter_tables: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(monkeypatch, spoil, counter_tables=counter_tables)
    fleet.world.run(30_000)
    fleet.check()


@pytest.mark.parametrize("query", QUERIES, ids=QUERIES)
def test_whatever_a_job_says_of_stragglers(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(monkeypatch, garbage, QUERIES[query])
    fleet.world.run(34_000)
    fleet.check()


@pytest.mark.parametrize("seed", [5, 7, 9])
def test_two_of_them_and_the_root_dies_meanwhile(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whoever is root next is offered the same snapshots. What came for a pane while its commit was made, and
    the commit was not to be, is counted once."""
    fleet = Fleet(monkeypatch, garbage, bad=2, seed=seed)
    world = fleet.world
    world.run(12_000)
    leader = world.leader(fleet.spec)
    leader.crash()
    world.run_until(lambda: world.leader(fleet.spec) is not leader)
    world.restart(leader)
    world.run(24_000)
    assert all(agent.up for agent in world.agents)
    assert fleet.ledger.findings == []
    windows = settled(world, fleet.spec, fleet.until)
    assert len(windows) >= 6
    names = {f"a{agent.index}" for agent in fleet.bad}
    last = [status for _, (_, _, status) in sorted(windows.items())][-3:]
    assert all(set(status["missing"]) == names for status in last)
    assert set(fleet.root().answers.unusable()) == names


def test_it_is_said_of_whom_and_once_it_is_well_again_it_is_in_the_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet(monkeypatch, garbage)
    world, (bad,) = fleet.world, fleet.bad
    world.run(10_000)
    leader = world.leader(fleet.spec)
    name = f"a{bad.index}"
    count, why = fleet.root().answers.unusable()[name]
    assert why == "not a whole Arrow table: its end is missing"
    assert leader.node.job_groups.roots.told_unusable() == {name: count}
    assert count > 1
    said = [one for agent in world.agents for one in agent.unusable]
    members = {one.members for one in said}
    numbers = {m.number for m in leader.node.log.members("clicks") if m.name == name}
    assert members == {1 << number for number in numbers}
    world.agents[0].handle(was.Arrived("client:9", Execute(request=7, sql="DESCRIBE job", creator="me")))
    world.run_until(lambda: bool(world.client_inbox))
    (reply,) = world.client_inbox
    assert isinstance(reply, Reply)
    described = {row["fact"]: row["value"] for row in decode(reply.payload).to_pylist()}
    assert described["unusable"].endswith(f"pieces of {name} cannot be opened: {why}")
    assert f"{name} ({why})" in fleet.root().answers.why(lambda pane: pane, world.now)
    fleet.bad.clear()
    world.run(26_000)
    windows = settled(world, fleet.spec, fleet.until)
    last = [status for _, (_, _, status) in sorted(windows.items())][-3:]
    assert [status["missing"] for status in last] == [[]] * 3


def test_early_results_go_on_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    base = plan(2)
    fleet = Fleet(monkeypatch, garbage, replace(base, fragment=replace(base.fragment, changes_us=500_000)))
    (bad,), world, early = fleet.bad, fleet.world, Sender.early

    def says(sender: Sender, one: Early) -> list[Effect]:
        return early(sender, replace(one, payload=b"none") if sender is bad.node.sender else one)

    reader, found = world.agents[0], list[WindowResult]()

    def published(result: WindowResult, now_ms: int) -> list[Effect]:
        found.append(result)
        return []

    monkeypatch.setattr(Sender, "early", says)
    monkeypatch.setattr(reader.node.clients, "published", published)
    subscribes = SubscribeJob(id=1, origin=reader.address, uid=fleet.spec.uid, after=None)
    for _ in range(10):
        world.leader(fleet.spec).handle(was.Arrived(reader.address, subscribes))
        world.run(2_000)
    assert all(agent.up for agent in world.agents)
    shown = [one for result in found if result.early for one in decode(result.status).to_pylist()]
    lacking = [one for one in shown if len(one["missing"]) == 1 and one["expected"] == AGENTS]
    assert len(lacking) > 10, "whose panes were open"
    members = {m.number: m.name for m in reader.node.log.members("clicks")}
    (number,) = (number for number, name in members.items() if name == f"a{bad.index}")
    assert {name for one in lacking for name in one["missing"]} <= {f"a{bad.index}", f"member {number}"}
