"""Jobs in Python with several trees: each has a master, and all groups of a key come to one of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from agents.codec import pack
from elf.fields import replace
from elf.functions.hosts import Hosts, Settings
from elf.job import Job, JobError
from elf.job.catalog.admission import grow
from elf.job.catalog.log import CatalogLog
from elf.job.group.records import group_key
from elf.job.messages.log import AddProgram, JoinStream, ProgramAdded
from elf.job.program import calls
from elf.job.program.asking import Asking
from elf.job.program.calls import SendTo
from elf.job.program.gathering import WAIT_MS, Gathered, Gathering
from elf.job.program.keeping import Keeping
from elf.job.program.messages import DropProgram, QueryProgram, Returned, Routed
from elf.job.program.port import ProgramEvent, ProgramState, StartProgram
from elf.job.program.runner import JobRunner, UserCodeError
from elf.job.program.seats import TREES_MAX, key_of, seat_of
from elf.job.program.spec import ProgramSpec
from elf.job.program.values import unpack_value
from elf.job.rollup.decide import RootSettings
from elf.wire.base import Answer
from lab.chaos import programs
from lab.chaos.agent import SimAgent
from lab.chaos.engine import GONE, STREAM
from lab.chaos.world import World
from tests.support.two_agents import Popular, two_agents

KEYED, NAMED = 3, 0


def begun(seed: int, trees: int, agents: int = 5) -> tuple[World, ProgramSpec]:
    """A fleet in which all agents count, and write for three seconds."""
    world = World(seed, agents)
    world.start_all()
    uid = programs.submit(world, world.agents[1], trees)
    world.run_until(lambda: all(programs.is_begun(agent, uid) for agent in world.agents))
    write(world)
    spec = world.agents[1].node.log.program(uid)
    assert spec is not None
    return world, spec


def truth(world: World, uid: str) -> Counter[str]:
    """All rows of all agents since the job began, of those that are gone too."""
    rows = [(a.logs[STREAM].rows, a.tapped[STREAM].get(uid, 0)) for a in world.agents]
    return Counter(key for of, first in rows for _, key in of[first:])


def write(world: World) -> None:
    for agent in world.agents:
        if agent.up:
            world.write(agent, world.now + 3_000)


def master_of(world: World, spec: ProgramSpec, tree: int) -> SimAgent | None:
    key = key_of(spec.uid, seat_of(tree))
    return next((agent for agent in world.agents if agent.up and key in agent.jobs.runners), None)


def counted(world: World, spec: ProgramSpec) -> list[dict[str, int]]:
    """What each master has."""
    up = [agent for agent in world.agents if agent.up]
    found = [programs.counted(up, spec.uid, tree) for tree in range(len(spec.trees))]
    return [one for one in found if not isinstance(one, str)]


def is_right(world: World, spec: ProgramSpec) -> bool:
    counts = counted(world, spec)
    if len(counts) < len(spec.trees):
        return False
    keyed = 0 if spec.trees == programs.TWO else len(spec.trees)
    return all(one == truth(world, spec.uid) for one in programs.together(counts, keyed))


@pytest.mark.parametrize("trees", [KEYED, NAMED])
def test_each_tree_has_a_master_and_one_that_is_gone_with_its_disk_goes_on_elsewhere(trees: int) -> None:
    world, spec = begun(1, trees)
    world.run(4_000)
    world.run_until(lambda: is_right(world, spec), limit_ms=20_000)
    assert sum(map(bool, counted(world, spec))) >= 2, "of six keys the third tree has none"
    world.run(2_000)  # what its own agent has sent is committed
    lost = master_of(world, spec, 1)
    assert lost is not None
    assert lost is not master_of(world, spec, 0)
    lost.crash()
    lost.ended = GONE
    write(world)
    world.run(3_000)
    world.run_until(lambda: is_right(world, spec), limit_ms=30_000)
    assert master_of(world, spec, 1) is not lost
    world.run(5_000)
    assert is_right(world, spec)


def test_a_tree_whose_agent_is_gone_before_the_job_comes_gets_another_one() -> None:
    world = World(2, 5)
    world.root_settings = RootSettings(grace_ms=10_000)
    world.start_all()
    spec = programs.counting(2)
    (root,) = world.nearest(spec.topics[1:])
    gone = next(agent for agent in world.agents if agent.address == root)
    through = next(agent for agent in world.agents if agent is not gone)
    nearest, world.nearest = world.nearest, lambda keys: (root,)  # type: ignore[method-assign]
    gone.crash()
    uid = programs.submit(world, through, 2)
    world.nearest = nearest  # type: ignore[method-assign]
    left = [agent for agent in world.agents if agent.up]
    world.run_until(lambda: all(programs.is_begun(agent, uid) for agent in left))
    begun = left[0].node.log.program(uid)
    assert begun is not None
    assert begun.roots == (root,)
    assert master_of(world, begun, 1) is None
    world.run_until(lambda: master_of(world, begun, 1) is not None, limit_ms=60_000)
    write(world)
    world.run(3_000)
    world.run_until(lambda: is_right(world, begun), limit_ms=20_000)


def test_of_a_job_that_is_dropped_no_tree_keeps_a_group() -> None:
    world, spec = begun(4, KEYED)
    world.run(2_000)
    keys = [group_key(group) for group in spec.groups]
    assert all(any(key in agent.groups() for agent in world.agents) for key in keys)
    agent = world.agents[2]
    request = DropProgram(id=3, origin="client", app=spec.app, uid=spec.uid)
    agent.perform(
        agent.node.settle(agent.node.overlay.route(request.app, pack(request), world.now), world.now)
    )
    held = [(key, one) for key in keys for one in world.agents]
    # who was asked to enter a group while it ended gives that up after a minute
    world.run_until(lambda: not any(key in one.groups() for key, one in held), limit_ms=90_000)
    world.run(1_000)
    assert not programs.masters(world)
    assert all(one.store.master(group) is None for one in world.agents for group in spec.groups)
    write(world)
    programs.submit(world, world.agents[3], 2)
    again = f"{spec.app.hex()}.2"
    world.run_until(lambda: all(programs.is_begun(one, again) for one in world.agents))
    world.run_until(lambda: [len(agent.jobs.runners) for agent in programs.masters(world)] == [2, 2])


# -- answers ---------------------------------------------------------------------------------------------


def asked(world: World, spec: ProgramSpec, id_: int) -> Answer:
    """What a client gets that asks the job."""
    first = master_of(world, spec, 0)
    assert first is not None
    question = QueryProgram(id=id_, origin=f"client{id_}", app=spec.app, value=b"\xc0")
    first.guard(lambda: first.perform(first.node.settle([*routed(first, question)], first.now_ms)))
    answers = [m for m in world.client_inbox if isinstance(m, Answer) and m.id == id_]
    world.run_until(lambda: any(m.id == id_ for m in world.client_inbox if isinstance(m, Answer)))
    answers = [m for m in world.client_inbox if isinstance(m, Answer) and m.id == id_]
    return answers[0]


def routed(agent: SimAgent, question: QueryProgram) -> list[Any]:
    return [*agent.node.programs.arrived(question.origin, question, agent.now_ms, None)]


@pytest.mark.parametrize("trees", [KEYED, NAMED])
def test_a_query_is_answered_by_all_masters_together(trees: int) -> None:
    world, spec = begun(5, trees)
    world.run(4_000)
    world.run_until(lambda: is_right(world, spec), limit_ms=20_000)
    answer: Any = unpack_value(asked(world, spec, 71).body)
    expected = dict(truth(world, spec.uid))
    assert answer == (expected if trees else dict.fromkeys(programs.TWO, expected))


def test_a_query_that_a_master_does_not_answer_is_refused_with_its_tree() -> None:
    world, spec = begun(6, 2)
    world.run(5_000)
    lost = master_of(world, spec, 1)
    assert lost is not None
    lost.crash()
    answer = asked(world, spec, 72)
    assert answer.error == "the master of tree 1 does not answer: ask again"
    assert answer.body == b""


def test_parts_are_gathered_within_bounds() -> None:
    routed = Routed(app=bytes(16), source=b"", value=b"", origin="client", query=-1)
    gathering = Gathering("a:1", Asking("a:1"))
    two, three = gathering.ask(routed, ("0", "1", "2"), 0)
    assert (two.tree, three.tree, two.origin) == (1, 2, "a:1")
    assert gathering.returned(Returned(query=three.query, value=b"3")) is None
    assert gathering.returned(Returned(query=three.query, value=b"again")) is None
    assert gathering.returned(Returned(query=two.query, value=b"2")) == Gathered(routed, (b"2", b"3"))
    (_, late) = gathering.ask(routed, ("0", "1", "2"), 0)
    gathering.returned(Returned(query=late.query, value=b"3"))
    assert gathering.tick(WAIT_MS - 1) == []
    (found,) = gathering.tick(WAIT_MS)
    assert found.error == "the master of tree 1 does not answer: ask again"
    (failed, _) = gathering.ask(routed, ("0", "1", "2"), 0)
    refused = gathering.returned(Returned(query=failed.query, error="no"))
    assert refused == Gathered(routed, (), "tree 1: no")
    (large, _) = gathering.ask(routed, ("0", "1", "2"), 0)
    much = gathering.returned(Returned(query=large.query, value=bytes(2 * calls.VALUE_BYTES_MAX + 1)))
    assert much is not None
    assert "more than 8388608 bytes together" in much.error
    assert gathering.deadline() is None


# -- where they are --------------------------------------------------------------------------------------


def joined(*addresses: str) -> CatalogLog:
    log = CatalogLog()
    for number, address in enumerate(addresses):
        joins = JoinStream(
            stream="clicks", agent_id=f"id{number}", name=address, incarnation=1, address=address, since_us=0
        )
        grow(log, joins)
    return log


def test_a_tree_of_which_nobody_is_at_the_root_is_at_the_agent_nearest_to_its_key() -> None:
    spec = replace(programs.counting(3), generation=1, master="a:1")
    log = joined("a:1", "b:1")
    (entry,) = grow(log, AddProgram(spec=replace(spec, roots=("b:1", "nowhere:1"))))
    assert isinstance(entry, ProgramAdded)
    assert entry.spec.roots[0] == "b:1"
    assert entry.spec.roots[1] in ("a:1", "b:1")
    assert [log.leader(group) for group in spec.groups] == ["a:1", *entry.spec.roots]
    assert [uid for uid, _ in log.unbegun()] == list(spec.groups[1:])


def test_a_job_with_trees_and_no_place_for_them_is_none() -> None:
    spec = replace(programs.counting(2), generation=1, master="a:1", roots=("b:1",))
    assert grow(joined(), AddProgram(spec=spec)) == ()
    log = joined("a:1")
    log.append(ProgramAdded(seq=log.last + 1, spec=spec))
    assert log.skipped == {2: "a tree of it has no place"}
    assert log.program(spec.uid) is None


def test_a_slice_that_moves_stays_in_its_tree() -> None:
    job = Keeping(None, 0)
    job.calls(0, 1)
    job.acted(1, b"")
    job.sends(SendTo("b:1", b"x", 2), 0)
    (slice_,) = job._waiting.values()
    job.moves(slice_, "c:1")
    (moved,) = job._waiting.values()
    assert (moved.to, moved.tree, moved.number) == ("c:1", 2, 2)


# -- the class -------------------------------------------------------------------------------------------


class Spread(Popular):
    trees = 4


class Split(Job):
    trees = ("likes", "buys")

    def start(self) -> None:
        likes = "SELECT product, COUNT(*) AS n FROM clicks GROUP BY product"
        self.subscribe(likes, name="likes", tree="likes")
        self.subscribe("SELECT product, store, COUNT(*) AS n FROM clicks GROUP BY product, store", name="own")


def test_all_groups_of_a_key_go_up_one_tree() -> None:
    _, below = two_agents(Spread)
    names = [f"product {n}" for n in range(200)]
    parts = below.split(pa.table({"product": names, "clicks": [1] * 200}))
    assert [*parts] == [0, 1, 2, 3]
    assert sorted(name for part in parts.values() for name in part["product"].to_pylist()) == sorted(names)
    for name in names[:20]:
        ((tree, _),) = below.split(pa.table({"product": [name], "clicks": [1]})).items()
        assert name in parts[tree]["product"].to_pylist()


def test_groups_may_go_by_a_part_of_their_key() -> None:
    class ByStore(Job):
        trees = 3

        def start(self) -> None:
            self.subscribe("SELECT product, store, COUNT(*) AS n FROM clicks GROUP BY product, store")

    _, below = two_agents(ByStore)
    rows = {"product": [f"p{n}" for n in range(60)], "store": [f"s{n % 5}" for n in range(60)], "n": [1] * 60}
    parts = below.split(pa.table(rows), by=["store"])
    stores = [set(part["store"].to_pylist()) for part in parts.values()]
    assert sum(map(len, stores)) == len(set().union(*stores)) == 5
    with pytest.raises(JobError, match="by names clicks, which is no key column of main: product, store"):
        below.split(pa.table(rows), by=["clicks"])


def test_a_tree_with_a_name_takes_the_groups_of_its_queries() -> None:
    master, below = two_agents(Split)
    paos = pa.table({"product": ["Doom"], "n": [1]})
    assert {tree: part.num_rows for tree, part in below.split(paos, "likes").items()} == {"likes": 1}
    assert below.split(paos.slice(0, 0), "likes") == {}
    assert (below.tree, below.parent_in("buys")) == ("likes", "web-1:7071")
    with pytest.raises(JobError, match="the groups of own go up no tree: subscribe to it with tree="):
        below.split(paos, "own")
    with pytest.raises(JobError, match="there is no tree sales here; trees: likes, buys"):
        below.parent_in("sales")
    with pytest.raises(JobError, match="send_up at a master"):
        master.send_up(paos, "likes")


def test_answers_that_are_one_are_put_together() -> None:
    master, _ = two_agents(Spread)
    assert master.together([{"a": 1}, {"b": 2}, {}, {}]) == {"a": 1, "b": 2}
    assert master.together([[1], [2], [], []]) == [1, 2]
    table: Any = master.together([pa.table({"n": [n]}) for n in range(4)])
    assert table["n"].to_pylist() == [0, 1, 2, 3]
    assert master.together([1, 2, 3, 4]) == [1, 2, 3, 4]
    assert master.together([None] * 4) is None
    with pytest.raises(JobError, match="two trees answer 'a': say in together"):
        master.together([{"a": 1}, {"a": 2}, {}, {}])
    assert two_agents(Split)[0].together([1, 2]) == {"likes": 1, "buys": 2}


BODY = "from elf.job import Job, Rounds\nclass J({base}):\n    trees = {trees}\n{more}"


def loaded(trees: str, more: str = "", base: str = "Job") -> calls.Loaded:
    text = BODY.format(base=base, trees=trees, more=more)
    runner = JobRunner(text, "j.py", "j", "me", programs.no_queries)
    return runner.start(calls.Place("check", 0))


def test_trees_are_a_number_or_names() -> None:
    assert loaded("1").trees == ("0",)
    assert loaded("3").trees == ("0", "1", "2")
    assert loaded('["likes", "buys"]').trees == ("likes", "buys")
    for wrong in ("0", str(TREES_MAX + 1), "()", '("a", "a")', '("",)', '"likes"', "None", "(1, 2)", "2.0"):
        with pytest.raises(UserCodeError, match="how many, or their names: at most 32"):
            loaded(wrong)
    query = "    def start(self): self.subscribe('SELECT COUNT(*) AS n FROM clicks', tree='x')\n"
    with pytest.raises(UserCodeError, match="subscription main has tree='x'; trees = 2"):
        loaded("2", query)
    with pytest.raises(JobError, match="rounds are of one tree"):
        loaded("2", "    def combine(self, one, other): return one\n", "Rounds")
    text = BODY.format(base="Job", trees="3", more="")
    runner = JobRunner(text, "j.py", "j", "me", programs.no_queries, trees=2)
    with pytest.raises(UserCodeError, match="trees = 3 here; there were 2 when it was sent"):
        runner.start(calls.Place("a:1", 0))


def test_an_agent_runs_so_many_masters_and_one_more_fails_there() -> None:
    said: list[ProgramEvent] = []
    hosts = Hosts(said.append, lambda spec, line: None, Settings(jobs_max=1))
    hosts._hosts = dict.fromkeys(("a.1", "a.1!1", "a.1!2"))  # type: ignore[assignment]
    spec = programs.counting(3)
    hosts.perform(StartProgram(spec, calls.Place("a:1", 0), seat=3))
    hosts.perform(StartProgram(spec, calls.Place("a:1", 0)))
    assert [event.reason for event in said if isinstance(event, ProgramState)] == [
        "this agent runs 2 masters of Python jobs, which is its most",
        "this agent runs 1 Python jobs, which is its most",
    ]
    hosts.sandboxes.close()
