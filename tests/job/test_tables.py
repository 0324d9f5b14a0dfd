"""Tables of jobs, on virtual time: what is found by key is what the windows have said, whoever leads, and who
asks an agent again never sees a key go back."""

from __future__ import annotations

import msgspec
import pytest

from agents.answering.asks import ANSWER_MS, ToAddress, Until
from elf.batch import decode
from elf.fields import replace
from elf.job.messages.log import AddOutput
from elf.job.output import OutputSpec
from elf.job.tables import NO_TABLE, ReadTable, TableRows, why_unfit
from elf.ql.planner import plan_text
from elf.wire.base import Answer
from elf.wire.clients import Failed, Reply
from lab.chaos.engine import plan
from lab.chaos.world import World
from tests.support import histories
from tests.support.histories import begun
from tests.support.jobgroups import leader, members, moved, staffed
from tests.support.outside import refused, said
from tests.support.ql_table import SCHEMA
from tests.support.tables import last_rows, rows
from tests.support.versions import answered, reconfigure

CREATE = "CREATE TABLE seen FROM JOB job KEY (k0)"
QUERY = replace(plan(2), named=(("k0", "k0"),))


def test_an_answer_that_another_one_has_overtaken_is_asked_for_again() -> None:
    world = World(301, 3, checking=False)
    spec, _ = begun(world, 6_000, rate_ms=500, query=QUERY)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(2_000)
    node = world.agents[2].node
    (table,) = node.log.outputs()
    tables = node.clients.statements._table_reads
    (part,) = tables.parts(table)
    early, late = tables.read(part), tables.read(part)
    (asked,), _ = next(early), next(late)
    assert isinstance(asked, ToAddress)
    assert isinstance(asked.request, ReadTable)
    there = leader(world, spec).store.tables.read(asked.request)
    assert isinstance(there, TableRows)

    def up_to(number: int) -> list[Answer]:
        return [Answer(id=0, body=msgspec.msgpack.encode(replace(there, number=number)))]

    more = there.number + 4
    with pytest.raises(StopIteration):
        late.send(up_to(more))
    (again,) = early.send(up_to(more - 3))
    assert isinstance(again, ToAddress)
    assert isinstance(again.request, ReadTable)
    assert again.request.least == more
    with pytest.raises(StopIteration) as done:
        early.send(up_to(more))
    assert done.value.value.number == more


def test_rows_in_portions_are_read_anew_where_they_get_another_key_meanwhile() -> None:
    world = World(302, 3, checking=False)
    spec, _ = begun(world, 6_000, rate_ms=500, query=QUERY)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(2_000)
    node = world.agents[2].node
    (table,) = node.log.outputs()
    gathering = node.clients.statements._table_reads.gathered(table, anywhere=False)
    (asked,) = next(gathering)
    assert isinstance(asked, ToAddress)
    assert isinstance(asked.request, ReadTable)
    there = leader(world, spec).store.tables.read(asked.request)
    assert isinstance(there, TableRows)
    rekeyed = replace(there, kept=replace(there.kept, table=f"{table.app.hex()}.9"))

    def told(rows: TableRows, *, more: bool = False) -> list[Answer]:
        return [Answer(id=0, body=msgspec.msgpack.encode(replace(rows, more=more, next=b"x" * more)))]

    (asked,) = gathering.send(told(there, more=True))
    assert isinstance(asked, ToAddress)
    assert isinstance(asked.request, ReadTable)
    assert asked.request.after == b"x"
    (asked,) = gathering.send(told(rekeyed, more=True))
    assert isinstance(asked, ToAddress)
    assert isinstance(asked.request, ReadTable)
    assert asked.request.after == b""
    gathering.send(told(rekeyed, more=True))
    with pytest.raises(StopIteration) as done:
        gathering.send(told(rekeyed))
    assert [one.kept for one in done.value.value] == [rekeyed.kept] * 2


def test_who_asks_for_a_table_whose_place_another_one_takes_is_answered_by_that_one() -> None:
    world = World(303, 3, checking=False)
    begun(world, 6_000, rate_ms=500, query=QUERY)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(2_000)
    node = world.agents[2].node
    tables = node.clients.statements._table_reads
    (table,) = node.log.outputs()
    (part,) = tables.parts(table)
    asking = tables.read(part)
    (asked,) = next(asking)
    assert isinstance(asked, ToAddress)
    assert isinstance(asked.request, ReadTable)
    assert asked.request.table == table.uid
    options = tuple(sorted((dict(table.options) | {"of": table.uid}).items()))
    new = replace(table, generation=table.generation + 1, options=options)
    (until,) = asking.send([Answer(id=0, error=NO_TABLE)])
    assert isinstance(until, Until)
    assert not until.seen()
    node.membership.propose(AddOutput(spec=new), lambda: node.log.has_output(new.uid))
    world.run(3_000)
    assert until.seen()
    (again,) = asking.send([])
    assert isinstance(again, ToAddress)
    assert isinstance(again.request, ReadTable)
    assert (again.request.table, again.request.of) == (new.uid, table.uid)


def changed_for_ever(world: World, index: int) -> OutputSpec:
    """The table gets its key anew by what an agent proposes, and no round of that is the last."""
    for agent in world.agents:
        agent.store.tables.round_rows = 0
    node = world.agents[index].node
    (table,) = node.log.outputs()
    options = tuple(sorted((dict(table.options) | {"of": table.uid}).items()))
    new = replace(table, generation=table.generation + 1, options=options)
    node.membership.propose(AddOutput(spec=new), lambda: node.log.has_output(new.uid))
    return new


def test_a_change_of_a_key_is_explained_and_taken_back() -> None:
    world = World(304, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=500, query=QUERY)
    staffed(world, spec, 3)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(4_000)
    why = "k7 is no column that the job groups by"
    assert why in refused(world, 1, "EXPLAIN ALTER TABLE seen SET KEY (k7)")
    changed_for_ever(world, 2)
    world.run(2_000)
    (shown,) = rows(world, 0, "SHOW TABLES")
    assert str(shown["state"]).startswith("found by k0 until all rows have the new key")
    facts = {row["fact"]: row["value"] for row in rows(world, 1, "EXPLAIN ALTER TABLE seen SET KEY (k0)")}
    assert facts["plan"] == "the change under way is taken back, in one record"
    back = "table seen is found by k0 as before: the change of its key is taken back"
    assert said(world, 1, "ALTER TABLE seen SET KEY (k0)").text == back
    (shown,) = rows(world, 0, "SHOW TABLES")
    assert (shown["key"], shown["state"]) == ("k0", "up to date")
    world.run(3_000)
    for agent in members(world, spec):
        (one,) = agent.store.tables.stored(spec.uid)
        assert (one.kept.key, one.whole) == (("k0",), True)
    assert len(rows(world, 0, "SELECT * FROM seen")) > 3


def test_a_change_of_a_key_is_paused_and_goes_on_whoever_leads() -> None:
    world = World(306, 4, checking=False)
    spec, _ = begun(world, 40_000, rate_ms=500, query=QUERY)
    staffed(world, spec, 3)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(4_000)
    none = "table seen is found by k0: no change of its key is under way"
    assert none in refused(world, 1, "ALTER TABLE seen PAUSE")
    new = changed_for_ever(world, 2)
    world.run_until(lambda: world.agents[2].node.log.has_output(new.uid))
    paused = (
        "table seen: the change of its key is paused: it is found by k0, until RESUME and all rows have k0"
    )
    assert said(world, 1, "ALTER TABLE seen PAUSE").text == paused
    world.run(1_000)
    assert "the change of its key is paused already" in refused(world, 0, "ALTER TABLE seen PAUSE")

    def rounds() -> set[int]:
        there = (agent.store.tables.stored(spec.uid) for agent in members(world, spec))
        return {one.rounds for some in there for one in some if one.kept.table == new.uid}

    (before,) = rounds()
    lead = world.leader(spec)
    lead.crash()
    moved(world, spec, lead)
    world.run(3_000)
    world.restart(lead)
    world.run(3_000)
    assert rounds() == {before}, "none but those of before"
    (shown,) = rows(world, 0, "SHOW TABLES")
    assert str(shown["state"]).startswith("found by k0 until all rows have the new key: ")
    assert str(shown["state"]).endswith(" have; paused")
    assert len(rows(world, 0, "SELECT * FROM seen")) > 3
    for agent in world.agents:
        agent.store.tables.round_rows = 100
    assert said(world, 3, "ALTER TABLE seen RESUME").text == "table seen: the change of its key goes on"

    def has_all() -> bool:
        there = (agent.store.tables.stored(spec.uid) for agent in members(world, spec))
        return all([one.whole for one in some] == [True] for some in there)

    world.run_until(has_all)
    assert none in refused(world, 1, "ALTER TABLE seen RESUME")
    (shown,) = rows(world, 0, "SHOW TABLES")
    assert shown["state"] == "up to date"


def test_a_paused_change_is_taken_back_or_ends_with_its_table() -> None:
    world = World(307, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=500, query=QUERY)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(3_000)
    changed_for_ever(world, 0)
    world.run(1_000)
    said(world, 1, "ALTER TABLE seen PAUSE")
    back = "table seen is found by k0 as before: the change of its key is taken back"
    assert said(world, 1, "ALTER TABLE seen SET KEY (k0)").text == back
    (shown,) = rows(world, 0, "SHOW TABLES")
    assert shown["state"] == "up to date"
    said(world, 1, "DROP TABLE seen")
    world.run(3_000)
    assert all(not agent.store.tables.stored(spec.uid) for agent in members(world, spec))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("paused", [False, True])
def test_a_table_is_dropped_while_its_key_changes(dies: bool, paused: bool) -> None:
    world = World(308, 3, checking=False)
    spec, _ = begun(world, 40_000, rate_ms=500, query=QUERY)
    world.run(3_000)
    said(world, 2, CREATE)
    world.run(3_000)
    changed_for_ever(world, 0)
    world.run(1_000)
    if paused:
        said(world, 1, "ALTER TABLE seen PAUSE")
    lead = world.leader(spec)
    world.run_until(lambda: len(lead.store.tables.stored(spec.uid)) == 2)
    said(world, 1, "DROP TABLE seen")
    if dies:  # and the next one finds what the log has dropped
        lead.crash()
        moved(world, spec, lead)
        world.restart(lead)
    world.run_until(lambda: all(not agent.store.tables.stored(spec.uid) for agent in members(world, spec)))


def test_a_key_is_found_through_any_agent_whoever_leads() -> None:
    world = World(301, 4, checking=False)
    spec, until = begun(world, 16_000, rate_ms=500, query=QUERY)
    staffed(world, spec, 3)
    world.run(3_000)
    assert said(world, 2, CREATE).text == "table seen created, of the last window and all to come"
    world.run(3_000)
    lead = world.leader(spec)
    lead.crash()
    moved(world, spec, lead)
    world.restart(lead)
    world.run(max(until - world.now, 0) + 6_000)
    truth = last_rows(world, spec, 0)
    assert len(truth) > 3
    for through in range(4):
        found = {str(row["k0"]): row["s0"] for row in rows(world, through, "SELECT k0, s0 FROM seen")}
        assert found.items() <= {key: count for key, (_, count) in truth.items()}.items()
        for key, (_, count) in list(truth.items())[:3]:
            if key in found:
                (one,) = rows(world, through, f"SELECT * FROM seen WHERE k0 = '{key}'")
                assert (one["k0"], one["s0"]) == (key, count)
                told = said(world, through, f"SELECT * FROM seen WHERE k0 = '{key}'").text
                assert told.startswith("1 row of table seen, as of "), told
    world.run_until(lambda: len({agent.store.tables.states(spec.uid) for agent in members(world, spec)}) == 1)


def test_tables_are_shown_and_end_with_a_word_and_with_their_job() -> None:
    world = World(302, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000, query=QUERY)
    staffed(world, spec, 3)
    world.run(4_000)
    said(world, 1, f"{CREATE} RETAIN 5 MINUTES")
    said(world, 2, "CREATE TABLE other FROM JOB job KEY (k0)")
    world.run(2_000)
    (row, _) = rows(world, 0, "SHOW TABLES")
    assert (row["table"], row["job"], row["key"], row["state"]) == ("seen", "job", "k0", "up to date")
    assert int(str(row["rows"])) > 0
    facts = {fact["fact"]: fact["value"] for fact in rows(world, 1, "DESCRIBE TABLE seen")}
    assert facts["columns"] == "window_start timestamp[us], window_end timestamp[us], k0 string, s0 int64"
    assert (facts["a row for each"], facts["retained"]) == ("k0", "5 minutes")
    assert said(world, 0, "SHOW OUTPUTS").text == "no outputs"
    job = {fact["fact"]: fact["value"] for fact in rows(world, 1, "DESCRIBE job")}
    assert job["tables"] == "seen by k0, other by k0"
    assert said(world, 2, "DROP TABLE seen").text == "table seen dropped"
    world.run(2_000)
    assert all(len(agent.store.tables.stored(spec.uid)) == 1 for agent in members(world, spec))
    assert said(world, 1, "DROP JOB job").text == "job job dropped; its outputs have ended with it: other"
    world.run(30_000)
    assert not any(agent.store.tables.stored(spec.uid) for agent in world.agents)
    assert refused(world, 0, "SELECT * FROM other AS OF ANY") == "there is no table other; there are none"


def test_tables_of_a_silent_master_are_waited_for_once() -> None:
    world = World(306, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000, query=QUERY)
    staffed(world, spec, 3)
    world.run(4_000)
    for name in ("one", "two"):
        said(world, 1, f"CREATE TABLE {name} FROM JOB job KEY (k0)")
    world.run(2_000)
    alone = next(agent for agent in world.agents if agent is not leader(world, spec))
    for agent in world.agents:  # so that no other one goes on
        if agent is not alone:
            agent.crash()
    before = world.now
    shown = rows(world, alone.index, "SHOW TABLES")
    assert [row["table"] for row in shown] == ["one", "two"]
    assert all(" the master of its job, " in str(row["state"]) for row in shown), shown
    assert ANSWER_MS <= world.now - before < 1.5 * ANSWER_MS


def test_describe_tells_of_the_job_or_the_table_that_is_said_and_of_ones_own_job_first() -> None:
    world = World(304, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000, query=QUERY)
    staffed(world, spec, 3)
    world.run(4_000)
    said(world, 1, "CREATE TABLE job FROM JOB job KEY (k0)")
    world.run(2_000)

    def first(sql: str, creator: str) -> object:
        reply = histories.said(world, 2, sql, creator)
        if isinstance(reply, Failed):
            return reply.text
        assert isinstance(reply, Reply)
        return decode(reply.payload)["fact"][0].as_py()

    assert (spec.creator, spec.name) == ("me", "job")
    for creator, plain in (("me", "state"), ("other", "table")):
        assert first("DESCRIBE JOB job", creator) == "state"
        assert first("DESCRIBE job", creator) == plain
    assert first("DESCRIBE TABLE job", "me") == "table"
    assert "there is no stream job" in str(first("DESCRIBE STREAM job", "me"))
    assert "there is no job clicks" in str(first("DESCRIBE JOB clicks", "me"))


def test_what_no_table_can_be_is_refused_in_a_line() -> None:
    world = World(303, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000, query=QUERY)
    staffed(world, spec, 3)
    wrong = {
        "CREATE TABLE t FROM JOB job KEY (s0)": "table t of job job: s0 is no column that the job groups by; "
        "those are k0",
        "CREATE TABLE clicks FROM JOB job KEY (k0)": "table clicks: there is a stream of that name; choose "
        "another one",
        "CREATE TABLE t FROM JOB none KEY (k0)": "there is no job none; jobs: job",
        "DROP TABLE t": "there is no table t; there are none",
    }
    for sql, text in wrong.items():
        assert refused(world, 1, sql) == text
    said(world, 1, CREATE)
    assert (
        refused(world, 1, CREATE)
        == "table seen exists already; DROP TABLE seen first, or choose another name"
    )
    assert refused(world, 2, "DROP OUTPUT seen") == "seen is a table, and no output: DROP TABLE seen"
    said(world, 1, "CREATE TABLE b FROM JOB job KEY (k0)")
    assert refused(world, 1, "CREATE TABLE c FROM JOB job KEY (k0)") == (
        "job job has 2 tables, the most that a job can have"
    )


def test_a_version_whose_rows_a_table_could_not_take_is_refused() -> None:
    """Of ALTER and of ROLLBACK, by the job's master."""
    numbers, texts = replace(QUERY, kinds=("bigint",)), replace(plan(6, 2), kinds=("text",))
    world = World(304, 3, checking=False)
    spec, _ = begun(world, 30_000, rate_ms=1_000, query=numbers)
    staffed(world, spec, 3)
    world.run(3_000)
    world.client_inbox.clear()
    reconfigure(world, spec, "alter", texts, immediately=True)
    assert answered(world) == ""
    world.run(6_000)
    said(world, 1, CREATE)
    why = "its table seen: k0 is text in it, and would be bigint; DROP TABLE seen first"
    assert refused(world, 2, "ROLLBACK JOB job TO VERSION 1").endswith(f" says: {why}")
    world.client_inbox.clear()
    reconfigure(world, spec, "alter", replace(plan(4), kinds=("bigint",)))
    assert answered(world) == why
    said(world, 1, "DROP TABLE seen")
    assert "is version 3 now" in said(world, 2, "ROLLBACK JOB job TO VERSION 1").text


def test_a_table_whose_job_has_other_windows_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a job that goes back by itself, when its function has failed."""
    world = World(305, 3, checking=False)
    spec, _ = begun(world, 20_000, rate_ms=1_000, query=QUERY)
    staffed(world, spec, 3)
    said(world, 1, CREATE)
    world.run(8_000)
    (row,) = rows(world, 0, "SHOW TABLES")
    assert row["state"] == "up to date"
    monkeypatch.setattr("elf.job.group.reconfiguration.why_unfit", lambda *_: "")
    world.client_inbox.clear()
    reconfigure(world, spec, "alter", replace(plan(6, 2), named=(("k0", "key"),)), immediately=True)
    assert answered(world) == ""
    world.run(6_000)
    (row,) = rows(world, 0, "SHOW TABLES")
    assert row["state"] == "its job's windows do not fit"


def test_a_table_takes_the_rows_of_a_version_with_the_same_columns_and_types() -> None:
    def why(select: str, by: str) -> str:
        ends = "WINDOWING 10 SECONDS"
        had = plan_text(f"SELECT store, clicks, COUNT(*) AS n FROM x GROUP BY store, clicks {ends}", SCHEMA)
        new = plan_text(f"SELECT {select} FROM x GROUP BY {by} {ends}", SCHEMA)
        return why_unfit(
            [OutputSpec("seen", "me", 1, f"{'0' * 32}.1", "table:", (("key", "store"),))], had, new
        )

    assert not why("SUM(price) AS s, clicks, store", "clicks, store")
    assert not why("store, clicks + 1 AS clicks, COUNT(*) AS n", "store, clicks + 1")
    first = "DROP TABLE seen first"
    for kind in ("text", "double"):
        assert why(f"store, CAST(clicks AS {kind}) AS clicks, 1 AS n", f"store, CAST(clicks AS {kind})") == (
            f"its table seen: clicks is bigint in it, and would be {kind}; {first}"
        )
    assert why("store, COUNT(*) AS n", "store") == (
        f"its table seen: it has a row for each store, clicks, and that version groups by store; {first}"
    ).replace("store, clicks,", "clicks, store,")
    assert why("store, COUNT(*) AS n", "store, clicks").startswith("its table seen: its SELECT list lacks")
