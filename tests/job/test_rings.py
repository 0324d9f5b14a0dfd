"""Tables with a ring, on virtual time: each part is at the agents that follow it on the ring, and what a
majority of them have is read."""

from __future__ import annotations

import json

from elf.fields import replace
from elf.job.catalog.log import CatalogLog
from elf.job.catalog.rings import Rings
from elf.job.messages.log import AddOutput, MemberJoined, RingSwapped
from elf.job.output import OutputSpec
from elf.job.ring import COPIES, PARTS, replicas
from elf.job.spec import JobSpec
from elf.job.tables import TableKept, TableRows
from elf.wire.clients import Execute
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support.histories import begun
from tests.support.outside import refused, said
from tests.support.tables import last_rows, rows

QUERY = replace(plan(2), named=(("k0", "k0"),))
SEEN = "CREATE TABLE seen FROM JOB many KEY (k0) RING"


def ringed(seed: int, writing_ms: int, agents: int = 5) -> tuple[World, JobSpec, int]:
    """A job with a table with a ring; (the job, when the writing ends)."""
    world = World(seed, agents, checking=False)
    _, until = begun(world, writing_ms, rate_ms=300, query=QUERY)
    many = world.create(1, QUERY, "many")
    world.run(3_000)
    assert said(world, 2, SEEN).text == "table seen created, of the last window and all to come"
    return world, many, until


def rekeyed(world: World) -> tuple[OutputSpec, OutputSpec]:
    """The same key again, which is as much work as another one: (the table of before, the next one)."""
    node = world.agents[0].node
    (table,) = node.log.outputs()
    options = dict(table.options) | {"of": table.uid, "was": "k0"}
    new = replace(table, generation=table.generation + 1, options=tuple(sorted(options.items())))
    node.membership.propose(AddOutput(spec=new), lambda: node.log.has_output(new.uid))
    return table, new


def found(world: World, through: int, as_of: str = "") -> dict[str, object]:
    return {str(row["k0"]): row["s0"] for row in rows(world, through, f"SELECT k0, s0 FROM seen{as_of}")}


def filled(seed: int) -> tuple[World, dict[str, object]]:
    """The same when the writing has ended, and all rows of the table."""
    world, job, until = ringed(seed, 14_000)
    world.run(until - world.now + 6_000)
    all_rows = found(world, 0)
    assert len(all_rows) > 3
    assert all_rows.items() <= truth(world, job).items()
    return world, all_rows


def truth(world: World, job: JobSpec) -> dict[str, object]:
    return {key: count for key, (_, count) in last_rows(world, job, 0).items()}


def test_a_part_is_at_the_agents_that_follow_it_whoever_else_there_is() -> None:
    there = [f"10.0.0.{number}:7400" for number in range(1, 30)]
    for place in range(PARTS):
        first = replicas(there, place)
        assert len(set(first)) == COPIES
        others = [one for one in there if one not in first]
        assert replicas([*first, *others[:5]], place) == first
        assert replicas([one for one in there if one != first[0]], place)[:2] == first[1:]
    assert replicas(there[:2], 0) == tuple(sorted(there[:2], key=replicas(there[:2], 0).index))


def test_a_key_is_read_wherever_it_is_asked_for_and_while_agents_are_away() -> None:
    world, all_rows = filled(411)
    for through in range(5):
        for key in all_rows:
            (one,) = rows(world, through, f"SELECT * FROM seen WHERE k0 = '{key}'")
            assert (one["k0"], one["s0"]) == (key, all_rows[key])
    assert found(world, 3, " AS OF ANY") == all_rows
    world.agents[4].crash()
    world.run(3_000)
    assert found(world, 0) == all_rows, "two of three have it"
    (shown,) = rows(world, 1, "SHOW TABLES")
    told = {name: shown[name] for name in ("table", "shards", "parts", "rows")}
    assert told == {"table": "seen", "shards": 0, "parts": PARTS, "rows": len(all_rows)}
    facts = {row["fact"]: row["value"] for row in rows(world, 1, "DESCRIBE TABLE seen")}
    assert str(facts["parts"]).count(" at ") == PARTS
    assert "shards" not in facts
    assert len(json.loads(said(world, 1, "SELECT * FROM seen").body)["parts"]) == PARTS


def test_a_key_changes_while_agents_die_and_no_row_is_lost() -> None:
    world, job, until = ringed(412, 24_000)
    world.run(5_000)
    for agent in world.agents:
        agent.store.tables.round_rows = 1
    _, new = rekeyed(world)
    world.run(500)
    (shown,) = rows(world, 1, "SHOW TABLES")
    assert "until all rows have the new key" in str(shown["state"])
    assert f" of {PARTS} parts have all" in str(shown["state"])
    assert int(str(shown["rows"])) > 3
    world.agents[4].crash()
    world.run(1_000)
    world.restart(world.agents[4])
    last, key = 0, next(iter(truth(world, job)))
    for _ in range(20):
        world.run(400)
        number = int(json.loads(said(world, 3, f"SELECT * FROM seen WHERE k0 = '{key}'").body)["number"])
        assert number >= last
        last = number
    world.run(max(until - world.now, 0) + 8_000)
    (shown,) = rows(world, 1, "SHOW TABLES")
    assert shown["state"] == "up to date"
    all_rows = found(world, 3)
    assert len(all_rows) > 3
    assert all_rows.items() <= truth(world, job).items()
    stored = [one.kept.table for agent in world.agents for one in agent.store.tables.replicas()]
    assert len(stored) == PARTS * COPIES
    assert all(one.startswith(new.uid) for one in stored)


def test_who_founds_a_table_is_known_while_the_next_one_takes_its_place() -> None:
    """Agents that were away hear of both at once, and of those who came and left meanwhile."""
    log = ringed(417, 1_000)[0].agents[0].node.log
    (table,) = log.outputs()
    new = replace(table, generation=2, options=(*table.options, ("of", table.uid)))
    members = [f"10.0.0.{number}:7400" for number in range(6)]
    rings = Rings()
    rings.have(members)
    first = [rings.replicas(place) for place in range(PARTS)]
    rings.add(table)
    rings.add(new)
    rings.drop(table.uid)

    def founders(uid: str, place: int) -> set[str]:
        return {one for one in members if rings.founds(uid, place, one)}

    for place in range(PARTS):
        assert founders(table.uid, place) == set(first[place])
        assert not founders(new.uid, place)
    gone = first[0][1]
    rings.have([one for one in members if one != gone])
    rings.have(members)
    assert gone in rings.replicas(0)
    assert founders(table.uid, 0) == {first[0][0], first[0][2]}, "others have had its rows meanwhile"
    rings.swap(RingSwapped(seq=1, uid=new.uid, number=7))
    assert not founders(table.uid, 0)


def test_a_change_is_paused_and_goes_on() -> None:
    world, _, until = ringed(416, 10_000)
    world.run(until - world.now + 4_000)
    for agent in world.agents:
        agent.store.tables.round_rows = 1
    before = found(world, 0)
    _, new = rekeyed(world)
    world.run(300)
    assert "is paused: it is found by k0" in said(world, 1, "ALTER TABLE seen PAUSE").text
    world.run(6_000)
    (shown,) = rows(world, 2, "SHOW TABLES")
    assert str(shown["state"]).endswith("; paused")
    assert world.agents[0].node.log.rings.is_changing(new.uid)
    assert found(world, 2).keys() == before.keys()
    why = "its key is being changed; SHOW TABLES says how far that is"
    assert why in refused(world, 1, "ALTER TABLE seen SET KEY (k0)")
    assert said(world, 1, "ALTER TABLE seen RESUME").text.endswith("goes on")
    world.run(8_000)
    assert not world.agents[0].node.log.rings.is_changing(new.uid)
    assert found(world, 2).keys() == before.keys()


def test_a_ring_ends_with_its_table() -> None:
    world, _, _ = ringed(413, 8_000)
    assert "expected" in refused(world, 1, "CREATE TABLE more FROM JOB many KEY (k0) RING 5")
    assert said(world, 2, "DROP TABLE seen").text == "table seen dropped"
    world.run(4_000)
    for agent in world.agents:
        with agent.store.tables._file.reading() as con:
            assert con.execute("SELECT count(*) FROM kept_tables").fetchone() == (0,)


def test_who_leaves_is_followed_by_another_one_that_has_all_rows() -> None:
    world, all_rows = filled(414)
    log = world.agents[0].node.log
    gone = next(one for one in world.agents if one.address in log.rings.replicas(0) and one.index > 2)
    gone.guard(lambda: gone.perform(gone.node.leave(gone.now_ms)))
    world.run(12_000)
    assert gone.address not in log.rings.replicas(0)
    assert found(world, 0) == all_rows
    assert found(world, 1, " AS OF ANY") == all_rows
    for place in range(PARTS):
        for at in log.rings.replicas(place):
            there = world.by_address[at].store.tables.replicas()
            assert any(one.whole and one.kept.table.endswith(f"#{place}") for one in there)


def test_who_leaves_stays_until_its_parts_are_elsewhere() -> None:
    """All who are to have them have to have got them, also one that is away."""
    world, all_rows = filled(418)
    log = world.agents[0].node.log
    there = log.addresses()
    gone, late = next(
        (world.by_address[at], world.by_address[heir])
        for at in sorted(there)
        for place in range(PARTS)
        for heir in set(replicas(there - {at}, place)) - set(log.rings.replicas(place))
        if 0 not in (world.by_address[at].index, world.by_address[heir].index)
    )
    late.crash()
    gone.guard(lambda: gone.perform(gone.node.leave(gone.now_ms)))
    world.run(10_000)
    assert gone.address not in log.addresses()
    assert gone.up, "nobody else has all that it has"
    world.restart(late)
    world.run(6_000)
    assert not gone.up
    assert found(world, 0) == all_rows


def test_an_answer_says_that_it_lacks_what_came_while_its_key_changed() -> None:
    world, _, until = ringed(415, 8_000)
    world.run(until - world.now + 6_000)
    (table,) = world.agents[0].node.log.outputs()
    told = said(world, 1, "SELECT * FROM seen")
    assert "recovering" not in json.loads(told.body)
    new = replace(table, generation=2, options=(*table.options, ("of", table.uid)))
    rings = Rings()
    rings.add(table)
    rings.add(new)
    rings.drop(table.uid)
    assert rings.is_changing(new.uid)
    rings.swap(RingSwapped(seq=1, uid=new.uid, number=7))
    rings.swap(RingSwapped(seq=2, uid=new.uid, number=9))
    assert (rings.complete_at(new.uid), rings.complete_at(table.uid)) == (7, 0)
    third = replace(table, generation=3, options=(*table.options, ("of", new.uid)))
    rings.add(third)
    rings.drop(new.uid)
    assert (rings.complete_at(new.uid), rings.complete_at(third.uid)) == (7, 0), "it is still read"
    tables = world.agents[1].node.clients.statements._tables
    asking = Execute(request=1, sql="", creator=table.creator)
    now = TableRows(TableKept(table.job, new.uid, ("k0",), ("k0",)), 5, None, 0, 0, 0, 0)
    tables._log.rings._rings = rings._rings
    late = tables._reply(asking, table, "0 rows", now, [now])
    assert json.loads(late.body)["recovering"]
    assert "it has 5 of 7 results again" in late.text


def test_who_lends_nothing_has_no_copy_and_loses_those_that_it_had() -> None:
    world = World(417, 5, checking=False)
    world.agents[3].lends = False
    _, until = begun(world, 14_000, rate_ms=300, query=QUERY)
    world.create(1, QUERY, "many")
    world.run(3_000)
    said(world, 2, SEEN)
    world.run(4_000)
    log, spared = world.agents[0].node.log, world.agents[3]
    assert spared.address in log.addresses()
    assert all(spared.address not in log.rings.replicas(place) for place in range(PARTS))
    changed = next(one for one in world.agents if one.index != 3 and one.address in log.rings.replicas(0))
    changed.crash()
    changed.lends = False
    world.restart(changed)
    world.run(until - world.now + 12_000)
    all_rows = found(world, 3)
    assert len(all_rows) > 3
    log = world.agents[3].node.log
    for place in range(PARTS):
        assert not {spared.address, changed.address} & set(log.rings.replicas(place))
        for at in log.rings.replicas(place):
            there = world.by_address[at].store.tables.replicas()
            assert any(one.whole and one.kept.table.endswith(f"#{place}") for one in there)
    assert not spared.store.tables.replicas()
    assert not changed.store.tables.replicas()


def test_where_nobody_lends_all_do() -> None:
    log = CatalogLog()
    entries = [
        MemberJoined(
            seq=number + 1,
            stream="s",
            number=number,
            agent_id=f"id{number}",
            name=f"a{number}",
            incarnation=1,
            address=f"h{number}:1",
            since_us=0,
            lends=number == 1,
        )
        for number in range(3)
    ]
    log.extend(0, entries[:1])
    assert log.lenders() == {"h0:1"}
    log.extend(1, entries[1:])
    assert log.lenders() == {"h1:1"}
