"""Prepared statements over changing batches: mappers and finishers."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from agents.tasks.engine import Mapper, OverGroups, Statement
from elf.errors import ElfBug
from elf.schema import Column

MAP = 'SELECT "_pane", "k", count(*) AS c, sum("v") AS s FROM rows GROUP BY ALL ORDER BY ALL'


def test_a_mapper_reads_each_batch_once() -> None:
    mapper = Mapper(MAP, [Column("k", "text"), Column("v", "bigint")])
    first = mapper.run(pa.table({"k": ["a", "b", "a"], "v": [1, 2, 3], "_pane": [0, 0, 0]}))
    second = mapper.run(pa.table({"_pane": [7], "v": [9], "k": ["z"]}))
    assert first.to_pylist() == [
        {"_pane": 0, "k": "a", "c": 2, "s": Decimal(4)},
        {"_pane": 0, "k": "b", "c": 1, "s": Decimal(2)},
    ]
    assert second.to_pylist() == [{"_pane": 7, "k": "z", "c": 1, "s": Decimal(9)}]
    assert second.schema.field("s").type == pa.decimal128(38, 0)
    assert (
        mapper.run(
            pa.table(
                {
                    "_pane": pa.array([], pa.int64()),
                    "k": pa.array([], pa.string()),
                    "v": pa.array([], pa.int64()),
                }
            )
        ).num_rows
        == 0
    )
    mapper.close()


def test_rows_in_several_chunks_and_columns_beyond_those_asked() -> None:
    mapper = Mapper(MAP, [Column("k", "text"), Column("v", "bigint")])
    part = pa.table({"k": ["a"], "v": [1], "_pane": [0], "other": [True]})
    assert mapper.run(pa.concat_tables([part] * 3)).to_pylist() == [
        {"_pane": 0, "k": "a", "c": 3, "s": Decimal(3)}
    ]
    mapper.close()


def test_sums_do_not_overflow() -> None:
    mapper = Mapper(MAP, [Column("k", "text"), Column("v", "bigint")])
    big = 2**63 - 1
    found = mapper.run(pa.table({"k": ["a"] * 3, "v": [big] * 3, "_pane": [0] * 3}))
    assert found["s"].to_pylist() == [Decimal(3 * big)]
    mapper.close()


def test_timestamps_are_utc() -> None:
    mapper = Mapper(
        'SELECT date_trunc(\'day\', "at") AS day, CAST("at" AS VARCHAR) AS t FROM rows',
        [Column("at", "timestamp")],
    )
    at = dt.datetime(2020, 3, 29, 1, 30)
    found = mapper.run(pa.table({"at": pa.array([at], pa.timestamp("us")), "_pane": [0]}))
    assert found.to_pylist() == [{"day": dt.datetime(2020, 3, 29), "t": "2020-03-29 01:30:00"}]
    mapper.close()


def test_a_statement_over_groups_follows_their_types() -> None:
    over = OverGroups("SELECT k, s * 2 AS d FROM groups WHERE s > 1 ORDER BY s DESC LIMIT 2")
    for kind in (pa.int64(), pa.float64(), pa.decimal128(38, 0), pa.int64()):
        groups = pa.table({"k": ["a", "b", "c", "d"], "s": pa.array([1, 2, 4, 3], kind)})
        assert [(row["k"], int(row["d"])) for row in over.run(groups).to_pylist()] == [("c", 8), ("d", 6)]
    over.close()
    over.close()


def test_a_statement_that_duckdb_refuses_is_our_bug() -> None:
    with pytest.raises(ElfBug, match="nothing_like_it"):
        Statement("SELECT nothing_like_it FROM t", "t", pa.schema([pa.field("a", pa.int64())]))


def test_nothing_is_said_at_the_end_of_the_process() -> None:
    """Neither warnings nor complaints about leaks, whether it was closed or not."""
    code = (
        "import pyarrow as pa\n"
        "from agents.tasks.engine import Mapper\n"
        "from elf.schema import Column\n"
        "mapper = Mapper('SELECT count(*) AS c FROM rows', [Column('k', 'text')])\n"
        "print(mapper.run(pa.table({'k': ['a'], '_pane': [0]})).to_pylist())\n"
        "mapper.close()\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[{'c': 1}]\n", "")
