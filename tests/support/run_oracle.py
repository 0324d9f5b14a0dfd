"""The bundled log as a DuckDB table, parsed by a regular expression of our own: nothing of elf is in it."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa

SAMPLE = Path(__file__).parents[2] / "examples" / "access.log"

_LINE = re.compile(
    r'(\S+) \S+ (\S+) \[([^\]]+)\] "((?:[^"\\]|\\.)*)" (\d{3}) (\d+|-) "((?:[^"\\]|\\.)*)" "((?:[^"\\]|\\.)*)"$'
)
_REQUEST = re.compile(r"([A-Z]+) (\S+)(?: (HTTP/\d(?:\.\d)?))?$")


def _or_null(text: str) -> str | None:
    return None if text == "-" else text


def rows() -> list[dict[str, object]]:
    """The lines that are access log lines."""
    found: list[dict[str, object]] = []
    for raw in SAMPLE.read_bytes().splitlines():
        try:
            match = _LINE.match(raw.decode())
            if match is None:
                continue
            ip, user, when, request, status, size, referer, agent = match.groups()
            moment = datetime.strptime(when, "%d/%b/%Y:%H:%M:%S %z").astimezone(UTC).replace(tzinfo=None)
        except ValueError:
            continue
        parts = _REQUEST.match(request)
        uri = parts[2] if parts else None
        stem, _, query = uri.partition("?") if uri else ("", "", "")
        found.append(
            {
                "ts": moment,
                "c_ip": ip,
                "cs_username": _or_null(user),
                "cs_request": _or_null(request),
                "cs_method": parts[1] if parts else None,
                "cs_uri_stem": stem if parts else None,
                "cs_uri_query": query if parts and "?" in (uri or "") else None,
                "cs_version": parts[3] if parts else None,
                "sc_status": int(status),
                "sc_bytes": None if size == "-" else int(size),
                "cs_referer": _or_null(referer),
                "cs_user_agent": _or_null(agent),
            }
        )
    return found


def connect() -> duckdb.DuckDBPyConnection:
    """A connection with the rows as ``log``."""
    parsed = rows()
    schema = pa.schema(
        [
            ("ts", pa.timestamp("us")),
            *(
                (n, pa.int64() if n in ("sc_status", "sc_bytes") else pa.string())
                for n in parsed[0]
                if n != "ts"
            ),
        ]
    )
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("parsed", pa.Table.from_pylist(parsed, schema=schema))
    connection.execute("CREATE TABLE log AS SELECT * FROM parsed")
    return connection
