"""Files that are joined: what becomes of their columns, and what is said against them."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from elf.batch import decode
from elf.client.files import tables_of
from elf.client.tables import FILE_BYTES_MAX, read_table
from elf.errors import UserError

TYPES = {
    "number": "int64", "part": "double", "text": "string", "code": "string", "yes": "bool",
    "day": "timestamp[us]", "none": "string",
}  # fmt: skip
LEAP = dt.datetime(2024, 2, 29)
ROWS: list[dict[str, object]] = [
    {"number": 1, "part": 0.5, "text": 'a, "b"', "code": "007", "yes": True, "day": LEAP},
    {"number": None, "part": -2.0, "text": None, "code": "8", "yes": None, "day": None},
]  # fmt: skip
CSV = 'number,part,text,code,yes,day,none\n1,0.5,"a, ""b""",007,true,2024-02-29,\n,-2,,8,,,\n'


def read(path: Path) -> pa.Table:
    return decode(read_table(str(path)))


def check(table: pa.Table) -> None:
    assert {field.name: str(field.type) for field in table.schema} == TYPES
    assert table.to_pylist() == [{**row, "none": None} for row in ROWS]


def test_a_csv(tmp_path: Path) -> None:
    (tmp_path / "it's.CSV").write_text(CSV)
    check(read(tmp_path / "it's.CSV"))
    (tmp_path / "t.tsv").write_text("a\tb\n1\tx\n")
    assert read(tmp_path / "t.tsv").to_pylist() == [{"a": 1, "b": "x"}]
    (tmp_path / "texts.csv").write_text("name,city\nAda,London\n")
    assert read(tmp_path / "texts.csv").to_pylist() == [{"name": "Ada", "city": "London"}]


def test_parquet_and_json(tmp_path: Path) -> None:
    table = pa.table({**{name: [row[name] for row in ROWS] for name in ROWS[0]}, "none": [None, None]})
    table = table.set_column(0, "number", table["number"].cast(pa.int8()))
    days = table["day"].cast(pa.timestamp("us")).cast(pa.date32())
    table = table.set_column(5, "day", days).set_column(6, "none", table["none"].cast(pa.string()))
    pq.write_table(table, tmp_path / "t.parquet")
    check(read(tmp_path / "t.parquet"))
    (tmp_path / "t.json").write_text(
        '[{"a": 1, "b": {"c": [1, "x"]}}, {"a": 2.5, "d": "2024-02-29T01:00:00Z"}]'
    )
    assert read(tmp_path / "t.json").to_pylist() == [
        {"a": 1.0, "b": '{"c":[1,"x"]}', "d": None},
        {"a": 2.5, "b": None, "d": dt.datetime(2024, 2, 29, 1)},
    ]


def test_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE products (id INTEGER, price, name)")
        con.executemany("INSERT INTO products VALUES (?, ?, ?)", [(1, 2, "a"), (2, 2.5, None), (3, None, 7)])
    con.close()
    table = read(path)
    assert [str(field.type) for field in table.schema] == ["int64", "double", "string"]
    assert table["name"].to_pylist() == ["a", None, "7"]
    with sqlite3.connect(path) as con:
        con.execute("CREATE TABLE more (id INTEGER, data BLOB)")
        con.execute("INSERT INTO more VALUES (1, x'00')")
    con.close()
    assert decode(read_table(f"{path}:products")) == table
    with pytest.raises(UserError, match=r"say which table .* tables: products, more"):
        read(path)
    with pytest.raises(UserError, match="has no table mor; tables: products, more"):
        read_table(f"{path}:mor")
    with pytest.raises(UserError, match="bytes"):
        read_table(f"{path}:more")


@pytest.mark.parametrize(
    ("name", "make", "said"),
    [
        ("a.csv", lambda path: None, "cannot be read: no such file"),
        ("a.xls", lambda path: path.write_text("a"), r"is no table: .*\.csv, \.tsv"),
        ("a.json", lambda path: path.write_text("{"), "cannot be read as a table"),
        ("a.parquet", lambda path: path.write_text("x"), "cannot be read as a table"),
        ("a.db", lambda path: path.write_text("x" * 200), "cannot be read as a table"),
        ("a.csv", lambda path: path.open("wb").truncate(FILE_BYTES_MAX + 1), "has 64 MiB"),
    ],
)
def test_what_is_no_table(tmp_path: Path, name: str, make: Callable[[Path], object], said: str) -> None:
    make(tmp_path / name)
    with pytest.raises(UserError, match=said):
        read(tmp_path / name)


def test_files_are_read_where_a_statement_joins_them(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id\n1\n")
    text = f"SELECT COUNT(*) FROM x LEFT JOIN '{tmp_path / 'a.csv'}' AS a ON x.id = a.id"
    assert list(tables_of(text)) == [str(tmp_path / "a.csv")]
    assert tables_of("SELECT 'JOIN' FROM x WHERE a = 'b.csv'") == {}
