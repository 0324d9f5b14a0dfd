"""A plan is made again of what stands for it where it travels: here, and in a process with other hashes."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import msgspec
import pytest

from elf.errors import UserError
from elf.job.catalog.log import CatalogLog, decode_entry, encode_entry
from elf.job.messages.log import AddJob, JobAdded, JobDropped
from elf.job.spec import JobSpec, Place, flow_uid
from elf.ql.definition import Contents, Definition, Read, TapDefinition, least, least_tap
from elf.ql.plan import Function, Plan
from elf.ql.planner import over_late, plan_streams
from elf.ql.statements import parse_query
from elf.ql.user_functions import with_function
from elf.schema import Column, Schema
from lab.bench.differential.asked import asked
from lab.bench.differential.queries import make_query
from tests.support.ql_cases import queries, scalars
from tests.support.ql_table import SCHEMA

RANDOM = 200
"""Queries over streams, files and jobs as ``elf bench differential`` draws them."""
_ELSEWHERE = """
import sys, msgspec
from elf.job.spec import JobSpec, flow_uid
for spec in msgspec.msgpack.decode(sys.stdin.buffer.read(), type=tuple[JobSpec, ...]):
    uids = [flow_uid(one, "g") for one in spec.plan.fragments]
    sys.stdout.buffer.write(msgspec.msgpack.encode((msgspec.msgpack.encode(spec.plan), uids)))
"""


def _read(text: str, **how: object) -> tuple[Definition, Plan]:
    """A query over the unpleasant table; ``how``: functions, pane_us, late_of."""
    query = parse_query(text)
    assert query is not None
    whole = Definition(query.sql, (("x", SCHEMA),), **how)  # type: ignore[arg-type]
    made = plan_streams(query, {"x": SCHEMA}, None, whole.pane_us)
    if whole.late_of:
        made = over_late(query, made, dict(whole.late_of))
    for function in whole.functions:
        made = with_function(made, function)
    return least(whole, made), made


def _drawn() -> list[tuple[Definition, Plan]]:
    found = []
    for seed in range(RANDOM):
        text = str(make_query(random.Random(f"definition {seed}"), lateness=bool(seed % 2)))
        try:
            made = asked(text)
            plan = made.plan()
        except UserError:
            continue
        found.append((made.definition(), plan))
    assert len(found) > RANDOM // 2
    kinds = [(bool(one.jobs), bool(one.tables), len(one.streams) > 1) for one, _ in found]
    assert all(map(any, zip(*kinds, strict=True)))
    return found


def _pairs() -> list[tuple[Definition, Plan]]:
    """Every query of the tests, and of each kind of clause one more."""
    texts = [case.elf for case in (*queries(), *scalars())]
    by = "SELECT store, SUM(clicks) AS n FROM x GROUP BY store"
    functions = tuple(Function(kind, f"def {kind}(batch): ...", "f.py") for kind in ("reduce", "final"))
    return [
        *map(_read, texts),
        _read(f"{by} ORDER BY n DESC LIMIT 3 WINDOWING 60 SECONDS TREES 3"),
        _read(f"{by} WINDOWING 60 SECONDS", functions=functions),
        _read(f"{by} WINDOWING 60 SECONDS", functions=(Function("map", "def map(batch): ...", "m.py"),)),
        _read(f"{by} WINDOWING 60 SECONDS", pane_us=10_000_000),
        _read(f"{by} WINDOWING 60 SECONDS", late_of=(("x", "ab" * 12),)),
        _read("SELECT SUM(clicks) AS n FROM x WHERE clicks > :least WINDOWING 5 SECONDS WITH (least = 2)"),
        *_drawn(),
    ]


@pytest.fixture(scope="module")
def pairs() -> list[tuple[Definition, Plan]]:
    return _pairs()


def test_every_plan_is_made_again_elsewhere_in_all_its_fields(pairs: list[tuple[Definition, Plan]]) -> None:
    sent = msgspec.msgpack.encode(tuple(JobSpec("j", "me", n, one) for n, (one, _) in enumerate(pairs)))
    seeded = {**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE],
        input=sent,
        stdout=subprocess.PIPE,
        check=True,
        env=seeded,
        timeout=60,
    )
    wanted = [
        (msgspec.msgpack.encode(plan), [flow_uid(one, "g") for one in plan.fragments]) for _, plan in pairs
    ]
    assert ran.stdout == b"".join(map(msgspec.msgpack.encode, wanted))


def test_no_sql_of_an_engine_travels(pairs: list[tuple[Definition, Plan]]) -> None:
    for definition, plan in pairs:
        sent = msgspec.msgpack.encode(JobSpec("j", "me", 1, definition))
        texts = [*(one.map_sql for one in plan.fragments), plan.final_sql, plan.spark_sql]
        assert not [sql for sql in texts if sql and sql.encode() in sent]


def test_what_a_plan_does_not_need_does_not_travel() -> None:
    made, plan = _read("SELECT SUM(clicks) AS n FROM x WHERE store = 'books' WINDOWING 5 SECONDS")
    ((_, schema),) = made.streams
    assert {"clicks", "store"} <= set(schema.names()) <= {"clicks", "store", "ts"}
    assert [one.name for one in plan.fragment.columns] == ["store", "clicks"]


def test_equal_definitions_are_one_plan_in_a_process() -> None:
    made, _ = _read("SELECT SUM(clicks) AS n FROM x WINDOWING 7 SECONDS")
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Definition)
    assert again == made
    assert again.plan is made.plan


_XS = (("x", Schema((Column("n", "bigint"), Column("ts", "timestamp")), "ts")),)
_FORGED = Read("u", "a", "i", "; COPY", (), ())
_SUM = "SELECT SUM(n) AS n FROM x WINDOWING 5 SECONDS"


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        (Definition("COPY (SELECT 1) TO '/tmp/out'", _XS), "COPY is not supported"),
        (Definition(f"{_SUM}; DROP JOB busy", _XS), "one SELECT"),
        (Definition("SELECT * FROM read_csv('/etc/passwd')", _XS), "no plan"),
        (Definition("SELECT SUM(m) AS n FROM x WINDOWING 5 SECONDS", _XS), "unknown column"),
        (Definition("SELECT SUM(n) AS n FROM JOB other", _XS), "nothing is said of job other"),
        (Definition(_SUM.replace("FROM x", "FROM x JOIN 'a.csv' AS a ON x.n = a.n"), _XS), "no plan"),
        (Definition(_SUM, _XS, tables=(Contents("a", "a.csv", b"junk"),)), "a.csv"),
        (Definition("", _XS), "one SELECT"),
        (Definition(_SUM, ()), "no plan"),
        (
            Definition("SELECT SUM(n) AS n FROM JOB a", _XS, jobs=(Read("u", "a", "i", "; COPY", (), ()),)),
            "no plan",
        ),
    ],
    ids=lambda one: one.sql[:40] if isinstance(one, Definition) else "",
)
def test_a_definition_without_a_plan_is_no_job(definition: Definition, why: str) -> None:
    spec = JobSpec("job", "me", 1, definition, (Place("ab" * 12, bytes(16), "a:1"),))
    with pytest.raises(ValueError, match=why):
        AddJob(spec=spec)
    log = CatalogLog([JobAdded(seq=1, spec=spec), JobDropped(seq=2, uid="x")])
    assert (list(log.skipped), log.last, log.jobs(), log.flows()) == ([1], 2, (), ())
    assert why in log.skipped[1]
    assert log.streams_of(JobAdded(seq=1, spec=spec)) == ()
    again = decode_entry(encode_entry(JobAdded(seq=1, spec=spec)))
    assert again == JobAdded(seq=1, spec=spec)


def test_a_job_with_other_flows_than_its_plan_has_is_none() -> None:
    spec = JobSpec("job", "me", 1, Definition(_SUM, _XS), (Place("ab" * 12, bytes(16), "a:1"),) * 2)
    with pytest.raises(ValueError, match="2 flows for the 1 fragments"):
        AddJob(spec=spec)


def test_a_tap_is_made_again_of_less() -> None:
    rows = least_tap(TapDefinition("t", "x", SCHEMA, where="clicks > 2", columns=("store",)))
    assert {"clicks", "store"} <= set(rows.schema.names()) <= {"clicks", "store", "ts"}
    groups = least_tap(TapDefinition("t", "x", SCHEMA, "SELECT store, COUNT(*) AS n FROM x GROUP BY store"))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(groups), type=TapDefinition)
    assert again.groups.states == groups.groups.states == (("s0_count", "n"),)
