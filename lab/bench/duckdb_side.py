"""DuckDB's side of ``elf bench ingest``: the same groups in one batch query, by DuckDB's own file readers, on
one thread.

JSON lines are read by ``read_json`` with the columns that the query needs, access logs by ``read_csv`` with
blanks between the fields, which is ten times quicker there than a regular expression over the line; other
formats by a regular expression with a group for each field that the query needs (``PATTERNS``). The
columns' types are elf's, so that both do the same work; the panes' numbers are part of the key, as in elf.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import duckdb
import msgspec
import pyarrow as pa

from agents.formats import get_format
from agents.tasks.samples import sample_lines
from elf.errors import UserError
from elf.schema import Column, ColumnType, Schema
from lab.bench.measure import Done, Run, Task, plan_of, timed
from lab.bench.sides import THREADS

_TYPES: Final[Mapping[ColumnType, str]] = {
    "bigint": "BIGINT",
    "double": "DOUBLE",
    "text": "VARCHAR",
    "boolean": "BOOLEAN",
}
_FIELDS: Final = (
    "c_ip", "ident", "cs_username", "day", "zone", "cs_request", "sc_status", "sc_bytes", "cs_referer",
    "cs_user_agent",
)  # fmt: skip
_METHOD: Final = "[!#$%&''*+.^_`|~0-9A-Za-z-]+"
_PROPER: Final = (
    f"len(q) IN (2, 3) AND q[2] <> '' AND (q[1] IN ('GET', 'POST') OR regexp_full_match(q[1], '{_METHOD}')) "
    "AND (q[3] IS NULL OR q[3] IN ('HTTP/1.1', 'HTTP/2.0') OR regexp_full_match(q[3], '[A-Za-z]+/[0-9.]+'))"
)
_PARTS: Final = {
    "cs_method": "q[1]",
    "cs_uri_stem": "split_part(q[2], '?', 1)",
    "cs_uri_query": "CASE WHEN contains(q[2], '?') THEN substr(q[2], strpos(q[2], '?') + 1) END",
    "cs_version": "q[3]",
}


NGINX: Final = (
    '$remote_addr - $remote_user [$time_local] "$request" $status $body_bytes_sent "$http_referer" '
    '"$http_user_agent" $request_time'
)
PATTERNS: Final[Mapping[str, tuple[tuple[tuple[str | None, str], ...], str]]] = {
    NGINX: (
        (
            ("c_ip", r"\S+"), (None, " - "), ("cs_username", r"\S+"), (None, r" \["), ("ts", r"[^\]]+"),
            (None, r'\] "'), ("cs_method", r"\S+"), (None, " "), ("cs_uri_stem", '[^ ?"]+'), (None, r"(?:\?"),
            ("cs_uri_query", '[^ "]*'), (None, ")? "), ("cs_version", '[^ "]+'), (None, '" '), ("sc_status", r"\d+"),
            (None, " "), ("sc_bytes", r"\S+"), (None, ' "'), ("cs_referer", '[^"]*'), (None, '" "'),
            ("cs_user_agent", '[^"]*'), (None, '" '), ("request_time", r"\S+"),
        ),
        "%d/%b/%Y:%H:%M:%S %z",
    ),
    "logfmt": (
        (
            (None, "time="), ("time", r"\S+"), (None, " level="), ("level", r"\S+"), (None, " method="),
            ("method", r"\S+"), (None, " path="), ("path", r"\S+"), (None, " status="), ("status", r"\d+"),
            (None, " bytes="), ("bytes", r"\d+"), (None, ' agent="'), ("agent", '[^"]*'), (None, '" duration='),
            ("duration", r"\S+"),
        ),
        "%Y-%m-%dT%H:%M:%SZ",
    ),
}  # fmt: skip
"""Of a format its fields, with what is between them, and how its times are written."""


def run_duckdb(task: Task) -> Run:
    """One run of DuckDB."""
    return timed(task, prepare(task))


def prepare(task: Task) -> Callable[[], Done]:
    """A connection with a view ``rows`` of the file's columns, and the query over it."""
    samples = sample_lines((task.path,))
    schema = get_format(task.format).schema(pa.array(samples, pa.string()), None)
    plan = plan_of(task.query, schema)
    unit_us = _unit_us(samples[0], schema.event_time) if task.format == "json" else None
    of = plan.fragment
    connection = duckdb.connect(config={"threads": THREADS})
    connection.execute(f"CREATE VIEW rows AS {rows_sql(task, schema, of.columns, of.pane_us, unit_us)}")

    def work() -> Done:
        return Done(0, connection.sql(plan.fragment.map_sql).to_arrow_table())

    return work


def _unit_us(line: str, event_time: str | None) -> int | None:
    """What the event times of a JSON log are numbers of, in µs, by the first line (as elf tells them apart);
    None where they are texts."""
    value = msgspec.json.decode(line).get(event_time)
    if not isinstance(value, int):
        return None
    return 1_000_000 if value < 10**11 else 1_000 if value < 10**14 else 1


def rows_sql(
    task: Task, schema: Schema, columns: tuple[Column, ...], pane_us: int, unit_us: int | None = None
) -> str:
    """The typed columns, and ``_pane``, as SQL over the file. ``unit_us``: its event times are numbers of it.

    Lines that don't parse are rows of NULLs to DuckDB: where the file has an event time, rows without one are
    left out.
    """
    time = schema.event_time
    if pane_us and time is None:
        raise UserError("the file has no event time, which WINDOWING needs")
    wanted = {column.name: column for column in columns}
    if time is not None:
        wanted[time] = Column(time, "timestamp")
    if task.format == "json":
        source, values = _json(task.path, [*wanted.values()], unit_us)
    elif task.format in PATTERNS:
        source, values = _matched(task, [*wanted.values()])
    else:
        source, values = access(task.path, [*wanted.values()])
    pane = f"epoch_us({values[time]}) // {pane_us}" if pane_us and time else "0"
    selected = [f"{values[column.name]} AS {_name(column.name)}" for column in columns]
    where = f" WHERE {values[time]} IS NOT NULL" if time else ""
    return f"SELECT {', '.join([*selected, f'{pane} AS _pane'])} FROM {source}{where}"


def _json(path: str, columns: list[Column], unit_us: int | None) -> tuple[str, dict[str, str]]:
    """(source, expression of each column). A dotted path is a field of a nested document."""
    time_type = "VARCHAR" if unit_us is None else "BIGINT"
    time = "TRY_CAST({} AS TIMESTAMP)" if unit_us is None else f"make_timestamp({{}} * {unit_us})"
    types: dict[str, object] = {}
    for column in columns:
        *parents, leaf = column.name.split(".")
        level = types
        for parent in parents:
            below = level.setdefault(parent, {})
            if not isinstance(below, dict):
                raise UserError(f"{column.name} is below a column that is used as a value")
            level = below
        level[leaf] = time_type if column.type == "timestamp" else _TYPES[column.type]
    typed = ", ".join(f"{_text(name)}: {_text(_struct(kind))}" for name, kind in types.items())
    source = f"read_json({_text(path)}, format='newline_delimited', ignore_errors=true, columns={{{typed}}})"
    if not columns:
        source = f"(SELECT 1 FROM read_json({_text(path)}, format='newline_delimited', ignore_errors=true, "
        source += "records=false, columns={'json': 'JSON'}) WHERE json_type(json) = 'OBJECT')"
    values = {}
    for column in columns:
        value = ".".join(_name(part) for part in column.name.split("."))
        values[column.name] = time.format(value) if column.type == "timestamp" else value
    return source, values


def _struct(kind: object) -> str:
    if isinstance(kind, dict):
        return f"STRUCT({', '.join(f'{_name(name)} {_struct(below)}' for name, below in kind.items())})"
    return str(kind)


def access(path: str, columns: list[Column]) -> tuple[str, dict[str, str]]:
    """(source, expression of each column) of an access log."""
    fields = ", ".join(f"{_text(name)}: 'VARCHAR'" for name in _FIELDS)
    source = (
        f"(SELECT *, string_split(cs_request, ' ') AS q FROM read_csv({_text(path)}, columns={{{fields}}}, "
        "header=false, auto_detect=false, delim=' ', quote='\"', escape='\\', strict_mode=false, "
        "ignore_errors=true, null_padding=true, parallel=false) "
        "WHERE length(sc_status) = 3)"
    )
    values: dict[str, str] = {}
    for column in columns:
        if column.name in _PARTS:
            values[column.name] = f"CASE WHEN {_PROPER} THEN nullif({_PARTS[column.name]}, '-') END"
        elif column.name == "ts":
            values["ts"] = "CAST(try_strptime(day || ' ' || zone, '[%d/%b/%Y:%H:%M:%S %z]') AS TIMESTAMP)"
        elif column.name in _FIELDS:
            values[column.name] = f"nullif({column.name}, '-')"
        else:
            raise UserError(f"an access log has no column {column.name} that DuckDB could read")
        if column.type not in ("text", "timestamp"):
            values[column.name] = f"TRY_CAST({values[column.name]} AS {_TYPES[column.type]})"
    return source, values


def _matched(task: Task, columns: list[Column]) -> tuple[str, dict[str, str]]:
    """(source, expression of each column) by a regular expression."""
    fields, time_form = PATTERNS[task.format]
    wanted = {column.name: column.type for column in columns}
    pattern = "".join(
        text if name is None else f"({text})" if name in wanted else f"(?:{text})" for name, text in fields
    )
    names = ", ".join(_text(name) for name, _ in fields if name in wanted)
    read = (
        f"read_csv({_text(task.path)}, columns={{'line': 'VARCHAR'}}, header=false, auto_detect=false, "
        "delim='\x01', quote='', escape='', parallel=false)"
    )
    source = f"(SELECT regexp_extract(line, {_text(f'^{pattern}$')}, [{names}]) AS g FROM {read})"
    values = {}
    for name, kind in wanted.items():
        value = f"g.{_name(name)}"
        if kind == "timestamp":
            values[name] = f"CAST(try_strptime({value}, '{time_form}') AS TIMESTAMP)"
        else:
            there = f"nullif({value}, '-')"
            values[name] = there if kind == "text" else f"TRY_CAST({there} AS {_TYPES[kind]})"
    return source, values


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(value: str) -> str:
    return '"' + value.replace('"', '""') + '"'
