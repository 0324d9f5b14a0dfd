"""Questions in ELF-QL beside the same questions written by hand in DuckDB's SQL over the whole table.

``tests/ql/queries.txt``: a query, ``----``, the same by hand. ``scalars.txt``: an expression, and below it,
indented, the same by hand. By hand there are ``t``, the table, ``by_…``, its rows once for each window that
holds them, and ``decimal_text``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

_HERE = Path(__file__).parents[1] / "ql"


@dataclass(frozen=True)
class Case:
    elf: str
    by_hand: str

    def __str__(self) -> str:
        return " ".join(self.elf.split())[:70]


def queries() -> list[Case]:
    """The queries about groups."""
    blocks = (_HERE / "queries.txt").read_text(encoding="utf-8").strip().split("\n\n")
    return [Case(*block.split("\n----\n")) for block in blocks]


def scalars(a_query: int = 20) -> list[Case]:
    """The expressions, several a query: grouped by the row's id, an aggregate gives the row's value."""
    lines = (_HERE / "scalars.txt").read_text(encoding="utf-8").splitlines()
    pairs = [(lines[number], lines[number + 1].strip()) for number in range(0, len(lines), 2)]
    cases = []
    for first in range(0, len(pairs), a_query):
        batch = list(enumerate(pairs[first : first + a_query]))
        elf = ", ".join(f"MAX({expression}) AS v{number}" for number, (expression, _) in batch)
        by_hand = ", ".join(f"{expression} AS v{number}" for number, (_, expression) in batch)
        cases.append(Case(f"SELECT id, {elf} FROM * GROUP BY id", f"SELECT id, {by_hand} FROM t ORDER BY id"))
    return cases


_WINDOWS = {
    "by_30s": ("30 SECONDS", "30 SECONDS"),
    "by_500ms": ("500 MILLISECONDS", "500 MILLISECONDS"),
    "by_1min": ("1 MINUTE", "1 MINUTE"),
    "by_1day": ("1 DAY", "1 DAY"),
    "by_20s_5s": ("20 SECONDS", "5 SECONDS"),
    "by_7s_5s": ("7 SECONDS", "5 SECONDS"),
}


def prepare(con: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
    """The names that the queries by hand use."""
    con.register("t", table)
    for name, (size, slide) in _WINDOWS.items():
        con.execute(f"""CREATE TEMP VIEW {name} AS
            SELECT last - back * INTERVAL {slide} AS window_start,
                   window_start + INTERVAL {size} AS window_end, t.*
            FROM (SELECT time_bucket(INTERVAL {slide}, ts, TIMESTAMP '1970-01-01') AS last, * FROM t) AS t,
                 (SELECT unnest([0, 1, 2, 3]) AS back)
            WHERE ts < last - back * INTERVAL {slide} + INTERVAL {size}""")
    con.execute(r"""CREATE TEMP MACRO decimal_text(x) AS
        CASE WHEN regexp_matches(x, '^\s*[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)(e[0-9]+)?\s*$') THEN x END""")
