"""Every function of the table, on generated values: DuckDB and Spark give the same, row by row."""

from __future__ import annotations

import duckdb

from elf.ql.catalogue import catalogue
from elf.ql.functions import ALIASES
from elf.ql.lookups import LOOKUPS
from tests.support.ql_functions import TRIALS, rows, values


def test_every_function_and_operator_is_tried() -> None:
    tried = " ".join(TRIALS).lower()
    real = {**{name: name for name in ALIASES.values()}, **ALIASES}
    functions = [entry for entry in catalogue() if entry.what == "function" and entry.name not in LOOKUPS]
    names = {
        entry.name: {entry.name, *(alias for alias, one in real.items() if one == entry.name)}
        for entry in functions
    }
    assert not [name for name, ways in names.items() if not any(f"{way}(" in tried for way in ways)]


def test_no_value_makes_duckdb_fail() -> None:
    table = rows(300, seed=1)
    con = duckdb.connect()
    con.register("rows", table)
    assert con.sql(values("duckdb")).to_arrow_table().num_rows == 300
