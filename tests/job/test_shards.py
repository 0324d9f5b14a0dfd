"""Tables with shards, on virtual time: each key is in one of them, in the group of a key range, and what all
have together is what the windows have said."""

from __future__ import annotations

import json

import pytest

from agents.answering.asks import ToAddress
from agents.answering.shards import Lacks, Part, Told, parts_of
from elf.batch import decode
from elf.fields import replace
from elf.job.effects import Send
from elf.job.group.groups import absent
from elf.job.messages.log import AddOutput
from elf.job.output import OutputSpec
from elf.job.spec import JobSpec, group_uid, is_range
from elf.job.tables import BEHIND, NO_TABLE, ReadTable, TableKept, TableRows, shard_uid
from elf.job.tables import begun as table_of
from elf.wire.base import Answer
from lab.chaos.agent import SimAgent
from lab.chaos.engine import plan
from lab.chaos.story import play
from lab.chaos.world import World
from tests.support import storms
from tests.support.histories import begun
from tests.support.outside import refused, said
from tests.support.storms import schedule
from tests.support.tables import last_rows, rows

QUERY = replace(plan(2), named=(("k0", "k0"),))
TREES = replace(QUERY, trees=3)
SEEN = "CREATE TABLE seen FROM JOB many KEY (k0) SHARDS 3"


def sharded(seed: int, writing_ms: int) -> tuple[World, JobSpec, int]:
    """A job of three trees, whose roots are on three agents, with a table of three shards; (the job, when
    the writing ends)."""
    world = World(seed, 4, checking=False)
    _, until = begun(world, writing_ms, rate_ms=300, query=QUERY)
    addresses = [agent.address for agent in world.agents]
    many = world.create(1, TREES, "many", (addresses[2], addresses[3]))
    world.run(3_000)
    assert said(world, 2, SEEN).text == "table seen created, of the last window and all to come"
    return world, many, until


def leads(world: World, group: str) -> SimAgent:
    return next(agent for agent in world.agents if agent.up and agent.node.job_groups.term(group) is not None)


def test_a_key_is_found_in_its_shard_and_all_shards_together_have_what_the_windows_say() -> None:
    world, job, until = sharded(311, 14_000)
    homes = world.agents[0].node.log.homes
    world.run(until - world.now + 6_000)
    (table,) = world.agents[0].node.log.outputs()
    assert homes(table.uid) == (job.uid, group_uid(job.uid, 1), group_uid(job.uid, 2))
    truth = last_rows(world, job, 0)
    found = {str(row["k0"]): row["s0"] for row in rows(world, 0, "SELECT k0, s0 FROM seen")}
    assert len(found) > 3
    assert found.items() <= {key: count for key, (_, count) in truth.items()}.items()
    for through in range(4):
        for key in found:
            (one,) = rows(world, through, f"SELECT * FROM seen WHERE k0 = '{key}'")
            assert (one["k0"], one["s0"]) == (key, found[key])
    kept = [keys(leads(world, group), table.uid, place) for place, group in enumerate(homes(table.uid))]
    assert sorted(key for some in kept for key in some) == sorted(found), "each is in one shard"
    assert sum(map(bool, kept)) > 1


def keys(agent: SimAgent, table: str, place: int) -> set[str]:
    """What the store of an agent has of a shard."""
    asked = ReadTable(id=0, origin="", uid="", table=shard_uid(table, place))
    found = agent.store.tables.read(asked)
    assert isinstance(found, TableRows)
    return {str(row["k0"]) for row in decode(found.rows).to_pylist()} if found.rows else set()


def test_shards_go_on_when_those_who_lead_them_and_the_master_die() -> None:
    world, job, until = sharded(312, 20_000)
    (table,) = world.agents[0].node.log.outputs()
    world.run(3_000)
    for group in world.agents[0].node.log.homes(table.uid):
        lead = leads(world, group)
        lead.crash()
        world.run(1_500)
        world.restart(lead)
        world.run(1_500)
    world.run(max(until - world.now, 0) + 8_000)
    truth = {key: count for key, (_, count) in last_rows(world, job, 0).items()}
    found = {str(row["k0"]): row["s0"] for row in rows(world, 3, "SELECT k0, s0 FROM seen")}
    assert len(found) > 3
    assert found.items() <= truth.items()
    (shown,) = rows(world, 1, "SHOW TABLES")
    assert (shown["table"], shown["shards"], shown["rows"]) == ("seen", 3, len(found))


def test_shards_are_refused_where_there_are_too_few_key_ranges_and_end_with_their_table() -> None:
    world, _, _ = sharded(313, 8_000)
    why = "its shards are in the groups of the job's key ranges, and job many has 3"
    assert why in refused(world, 1, "CREATE TABLE more FROM JOB many KEY (k0) SHARDS 4")
    log = world.agents[0].node.log
    (table,) = log.outputs()
    for name, value in (("shards", "9" * 9), ("shards", "x"), ("retain", "9" * 40)):
        options = tuple(sorted((dict(table.options) | {name: value}).items()))
        forged = replace(table, name="forged", generation=1, options=options)
        assert log.refused_output(forged), "of whoever says it past the statement"
    shard = ReadTable(id=0, origin="", uid=log.homes(table.uid)[1], table=shard_uid(table.uid, 1))
    answer = absent(log, shard)
    assert isinstance(answer, Send)
    assert isinstance(answer.message, Answer)
    assert answer.message.error.startswith("it is not up here yet")
    facts = {row["fact"]: row["value"] for row in rows(world, 1, "DESCRIBE TABLE seen")}
    assert str(facts["shards"]).count("rows)") == 3
    assert said(world, 2, "DROP TABLE seen").text == "table seen dropped"
    world.run(4_000)
    left = [agent.store.tables._file for agent in world.agents]
    for file in left:
        with file.reading() as con:
            assert con.execute("SELECT count(*) FROM kept_tables").fetchone() == (0,)


def test_a_table_with_shards_takes_the_place_of_another_one_while_agents_die() -> None:
    world, job, until = sharded(314, 24_000)
    world.run(5_000)
    for agent in world.agents:
        agent.store.tables.round_rows = 1
    node = world.agents[0].node
    (table,) = node.log.outputs()
    homes = node.log.homes(table.uid)
    apart = "".join("01"[is_range(home)] for home in homes)
    more = {"of": table.uid, "was": "k0", "homes": apart}
    new = replace(
        table, generation=table.generation + 1, options=tuple(sorted((dict(table.options) | more).items()))
    )
    wrong = replace(new, options=tuple(sorted((dict(new.options) | {"homes": "111"}).items())))
    assert node.log.refused_output(wrong) == "the shards of a table stay where they are"
    node.membership.propose(AddOutput(spec=new), lambda: node.log.has_output(new.uid))
    world.run(700)
    (shown,) = rows(world, 1, "SHOW TABLES")
    assert "until all rows have the new key" in str(shown["state"])
    assert int(str(shown["rows"])) > 3
    lead = leads(world, homes[1])
    lead.crash()
    world.run(1_000)
    world.restart(lead)
    last, key = 0, next(iter(last_rows(world, job, 0)))
    for _ in range(20):
        world.run(400)
        told = said(world, 3, f"SELECT * FROM seen WHERE k0 = '{key}'")
        number = int(json.loads(told.body)["number"])
        assert number >= last
        last = number
    world.run(max(until - world.now, 0) + 8_000)
    (shown,) = rows(world, 1, "SHOW TABLES")
    assert shown["state"] == "up to date"
    truth = {key: count for key, (_, count) in last_rows(world, job, 0).items()}
    found = {str(row["k0"]): row["s0"] for row in rows(world, 3, "SELECT k0, s0 FROM seen")}
    assert len(found) > 3
    assert found.items() <= truth.items()
    assert all(
        one.kept.table.startswith(new.uid)
        for agent in world.agents
        for home in homes
        for one in agent.store.tables.stored(home)
    )


def test_who_asks_for_shards_of_a_table_whose_place_another_one_takes_is_told_of_those_of_that() -> None:
    """And never of the table in the group of the job, which has no rows."""
    world, _, _ = sharded(315, 8_000)
    world.run(4_000)
    node = world.agents[3].node
    tables = node.clients.statements._table_reads
    (table,) = node.log.outputs()
    asking = tables.gathered(table, (), anywhere=False)
    next(asking)
    (part, *_) = tables.parts(table)
    more = {"of": table.uid, "was": "k0", "homes": "011"}
    options = tuple(sorted((dict(table.options) | more).items()))
    new = replace(table, generation=table.generation + 1, options=options)
    node.membership.propose(AddOutput(spec=new), lambda: node.log.has_output(new.uid))
    world.run(2_000)
    assert node.log.is_dropped(table.uid)
    for error in (NO_TABLE, BEHIND, "it is not up here yet"):
        of_it = tables.read(part)
        next(of_it)
        with pytest.raises(Lacks):
            of_it.send([Answer(id=0, error=error)])
    for spec in (table, new):  # what is read until that has all rows, and then it
        (asked,) = asking.send([Answer(id=0, error=NO_TABLE)])
        assert isinstance(asked, ToAddress)
        assert isinstance(asked.request, ReadTable)
        assert asked.request.table == shard_uid(spec.uid, 0)


def test_answers_are_right_while_agents_die_and_shards_get_another_key() -> None:
    assert not play(schedule(storms.sharded, 1)).findings


def test_a_column_that_a_key_names_twice_counts_once() -> None:
    spec = OutputSpec("seen", "me", 1, f"{'0' * 32}.1", "table:", (("key", "k0"), ("shards", "3")))
    twice = replace(spec, options=(("key", "k0,K0"), ("shards", "3")))
    homes, kinds = ("", "", ""), {"k0": "text"}
    for value in "abc":
        asked = (("k0", (value,)),)
        assert parts_of(twice, homes, asked, kinds) == [
            replace(one, spec=twice) for one in parts_of(spec, homes, asked, kinds)
        ]
    kept = table_of(replace(twice, options=(*twice.options, ("was", "K0,k0"))), QUERY)
    assert isinstance(kept, TableKept)
    assert kept.key == kept.was == ("k0",)


def test_what_was_told_of_any_shard_holds_for_those_of_the_next_table() -> None:
    spec = OutputSpec("seen", "me", 1, f"{'0' * 32}.1", "table:", (("key", "k0"), ("shards", "3")))
    new = replace(spec, generation=2, options=(*spec.options, ("of", spec.uid), ("was", "k0")))
    told = Told()

    def part(of: OutputSpec, place: int) -> Part:
        return Part(of, "", shard_uid(of.uid, place))

    told.take(part(spec, 0), 7)
    told.take(part(spec, 1), 9)
    told.take(part(spec, 1), 8)
    assert [told.least(part(spec, place)) for place in range(3)] == [7, 9, 0]
    assert [told.least(part(new, place)) for place in range(3)] == [9, 9, 9]
    told.take(part(new, 2), 12)
    assert [told.least(part(new, place)) for place in range(3)] == [9, 9, 12]
    assert told.least(part(spec, 0)) == 12, "it is asked for again, where the next one lacks rows"
