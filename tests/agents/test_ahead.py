"""Chunks that are parsed before their turn, and rows that no flow wants: the answers stay the same."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from agents.disk.store import Store
from agents.formats import get_format
from agents.inputs.ranges import split_inputs
from agents.inputs.values import Chunk
from agents.inputs.whole import Whole
from agents.tasks.engine import SqlExtractor
from agents.tasks.extracting import Extractor
from agents.tasks.streams import CHUNK_BYTES_LEAST, Ahead, Parsed, StreamEngine
from agents.tasks.streamtask import StreamTask, TaskStatus
from elf.batch import decode
from elf.fields import replace
from elf.job.commands import Finish, Install, Outcome, Uninstall
from elf.job.ports import WHERES_MAX, Wanted
from elf.job.spec import Flow, flow_uid
from elf.job.worker.stream import LONG_AGO, WorkerSettings
from elf.ql.plan import Fragment
from elf.ql.planner import plan_text
from elf.schema import Column, Schema

JSON = get_format("json")
COLUMNS = (
    Column("ts", "timestamp"),
    Column("shop", "text"),
    Column("product", "text"),
    Column("n", "bigint"),
)
BROKEN = ('{"ts": "2026-01-01T00:00:00Z", "shop": "a"', '{"ts": 1,}', "[1]", '{"n": NaN}', "")


def fragment(where: str) -> Fragment:
    query = f"SELECT product, SUM(n) AS s, COUNT(*) AS c FROM x {where} GROUP BY product WINDOWING 10 SECONDS"
    return plan_text(query, Schema(COLUMNS, "ts"), stream="x").fragment


def log(path: Path, rows: int, broken: bool) -> list[dict[str, object]]:
    """A log of several chunks; the valid records of it."""
    chosen = random.Random(7)
    records: list[dict[str, object]] = []
    with path.open("w") as file:
        for n in range(rows):
            record: dict[str, object] = {
                "ts": f"2026-01-01T00:00:{n * 50 // rows:02d}.{n % 1000:03d}Z",
                "shop": chosen.choice(["a", "b", None]),
                "product": f"p{chosen.randrange(20)}",
                "n": chosen.choice([n, None, "many"]),
                "more": "x" * 20,
            }
            records.append(record)
            file.write(json.dumps(record) + "\n")
            if broken and n % 9000 == 4000:
                file.write(chosen.choice(BROKEN) + "\n")
    return records


def task(cores: int) -> StreamTask:
    settings = WorkerSettings(
        finite=True, future_us=None, lateness_us=None, since_us=LONG_AGO, checkpoint_ms=1 << 60
    )
    facts = TaskStatus("x", JSON, "ts", "")
    return StreamTask(facts, settings, Store(":memory:"), cores=cores)


def flow(of: Fragment, name: str) -> Flow:
    return Flow(flow_uid(of, name), of, bytes(16), "")


def chunks(path: Path) -> Iterator[Chunk]:
    source = Whole(split_inputs((str(path),), 1)[0])
    while (chunk := source.read(CHUNK_BYTES_LEAST + 1000, 0)) is not None:
        yield chunk


def answer(sealed: Outcome, uid: str) -> list[dict[str, Any]]:
    tables = [decode(one.payload) for one in sealed.sealed if one.flow == uid and one.payload]
    rows = pa.concat_tables(tables).to_pylist() if tables else []
    return sorted(rows, key=lambda row: (row["_pane"], row["k0"]))


def feed(path: Path, cores: int, wheres: list[str]) -> tuple[list[list[dict[str, Any]]], Counter[str]]:
    """Every second flow comes while chunks are on their way, and one goes."""
    made = task(cores)
    flows = [flow(fragment(where), str(n)) for n, where in enumerate(wheres)]
    gone = flow(fragment("WHERE shop IS NULL"), "gone")
    for one in (*flows, gone):
        made.perform(Install(one), 0)
    counts: Counter[str] = Counter()
    waiting: list[tuple[Chunk, Future[Parsed] | None]] = [
        (chunk, made.ahead.parse(chunk, made.worker.wanted)) for chunk in chunks(path)
    ]
    assert len(waiting) > 3
    assert any(ahead is not None for _, ahead in waiting) == (cores > 1)
    for number, (chunk, ahead) in enumerate(waiting):
        if number == 2:
            made.perform(Uninstall(gone.uid), 0)
        counts.update(made.feed(chunk, (), 0, ahead).counts)
    sealed = made.perform(Finish(), 0)
    made.close(checkpoint=False)
    return [answer(sealed, one.uid) for one in flows], counts


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize(
    "wheres",
    [["WHERE shop = 'a'"], ["WHERE shop = 'a'", "WHERE n > 100 OR shop IS NULL"], ["WHERE shop = 'b'", ""]],
)
def test_the_same_ahead_and_in_turn(tmp_path: Path, wheres: list[str], broken: bool) -> None:
    path = tmp_path / "log"
    records = log(path, 12_000, broken)
    in_turn, counted = feed(path, 1, wheres)
    ahead, counted_ahead = feed(path, 2, wheres)
    assert in_turn == ahead
    assert counted == counted_ahead
    assert (counted["rejected"] > 0) == broken
    asked = [r for r in records if r["shop"] == wheres[0][-2]]
    by_product = Counter((int(str(r["ts"])[17:19]) // 10, r["product"]) for r in asked)
    first = min(row["_pane"] for row in in_turn[0])
    found = {(row["_pane"] - first, row["k0"]): row["s0_count"] for row in in_turn[0]}
    assert found == by_product


@pytest.mark.parametrize("kind", [Extractor, SqlExtractor])
def test_rows_are_wanted_by_any_condition(kind: type[Extractor] | type[SqlExtractor]) -> None:
    lines = pa.array([f'{{"shop": {shop}, "n": {n}}}' for shop in ('"a"', '"b"', "null") for n in (1, 2)])
    schema = (Column("shop", "text"), Column("n", "bigint"))
    wanted = Wanted.of([fragment("WHERE shop = 'a'"), fragment("WHERE n > 1")])
    extractor = kind(JSON, None, replace(wanted, columns=schema))
    found = extractor.extract(lines)
    extractor.close()
    assert found.wanted is not None
    assert found.wanted.tolist() == [True, True, False, True, False, True]
    rows = found.table.filter(pa.array(found.wanted)).select(["shop", "n"]).to_pylist()
    assert rows == [{"shop": s, "n": n} for s, n in (("a", 1), ("a", 2), ("b", 2), (None, 2))]


@pytest.mark.parametrize(
    ("where", "is_simple"),
    [
        ("shop = 'a'", True),
        ("shop <> 'it''s' AND n >= -1 AND n < 3", True),
        ("shop = 'a) AND (n > 1'", True),
        ("n BETWEEN 1 AND 2", True),
        ("n <> 2", True),
        ("shop > 'a'", True),
        ("n = 1 OR n > 2 OR shop = 'é'", True),
        ("NOT (shop IS NULL) AND n IN (1, 3)", True),
        ("n > 1.5", False),
        ("shop LIKE 'a%'", False),
        ("n < 99999999999999999999", False),
    ],
)
def test_simple_conditions_choose_what_sql_chooses(where: str, is_simple: bool) -> None:
    shops, numbers = ("a", "b", "it's", "a) AND (n > 1", "é", None), (-2, -1, 0, 1, 2, 3, None)
    lines = pa.array([json.dumps({"shop": shop, "n": n}) for shop in shops for n in numbers])
    schema = (Column("shop", "text"), Column("n", "bigint"))
    asked = replace(Wanted.of([fragment(f"WHERE {where}")]), columns=schema)
    assert bool(asked.conditions) == is_simple
    sql, ours = SqlExtractor(JSON, None, asked), Extractor(JSON, None, asked)
    theirs, found = sql.extract(lines).wanted, ours.extract(lines).wanted
    assert theirs is not None
    if found is not None:
        assert found.tolist() == theirs.tolist()
    sql.close()
    ours.close()


def test_every_row_is_wanted_where_one_flow_wants_all() -> None:
    assert Wanted.of([fragment("WHERE shop = 'a'"), fragment("")]).where_sqls == ()
    many = [fragment(f"WHERE n = {n}") for n in range(WHERES_MAX + 1)]
    assert Wanted.of(many).where_sqls == ()
    assert len(Wanted.of(many[1:]).where_sqls) == WHERES_MAX


def test_every_row_is_wanted_where_flows_disagree_about_a_type() -> None:
    one = fragment("WHERE n = 1")
    other = replace(one, columns=tuple(replace(c, type="text") if c.name == "n" else c for c in one.columns))
    assert Wanted.of([one]).where_sqls == Wanted.of([one, one]).where_sqls != ()
    assert Wanted.of([one, other]).where_sqls == ()


def test_a_line_that_does_not_parse_costs_only_itself() -> None:
    extractor = Extractor(JSON, None, Wanted((Column("n", "bigint"),)))
    for _ in range(2):
        for bad in ([], list(BROKEN), []):
            lines = ['{"n": 1}', *bad, '{"n": 2}']
            found = extractor.extract(pa.array(lines, pa.string()))
            assert found.table["n"].to_pylist() == [1, 2]
            assert found.rejected.tolist() == list(range(1, 1 + len(bad)))
    extractor.close()


def test_what_is_small_or_has_no_time_yet_is_left_to_the_lane(tmp_path: Path) -> None:
    path = tmp_path / "log"
    log(path, 4_000, broken=False)
    chunk = next(chunks(path))
    wanted = Wanted((Column("n", "bigint"),))
    for cores, event_time, parses in ((1, "ts", False), (2, None, False), (2, "ts", True)):
        ahead = Ahead("x", StreamEngine(JSON, event_time), cores)
        future = ahead.parse(chunk, wanted)
        assert (future is not None) == parses
        if future is not None:
            assert future.result()[1].table.num_rows == len(chunk.lines)
        ahead.close()
