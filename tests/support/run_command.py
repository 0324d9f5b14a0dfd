"""``elf run`` in the test's own process, and DuckDB's answer to compare with."""

from __future__ import annotations

import math
from datetime import datetime
from decimal import Decimal

import duckdb
import pytest

from elf.cli.main import main
from tests.support.run_queries import by_hand


def elf_run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """(exit status, stdout, stderr) of an ``elf run``."""
    with pytest.raises(SystemExit) as end:
        main(["run", *args])
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def expected(log: duckdb.DuckDBPyConnection, sql: str) -> list[dict[str, object]]:
    cursor = log.execute(by_hand(sql))
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, map(_plain, row), strict=True)) for row in cursor.fetchall()]


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds") + "Z"
    return int(value) if isinstance(value, Decimal) else value


def same(left: object, right: object) -> bool:
    if isinstance(left, float) and isinstance(right, float | int):
        return math.isclose(left, right, rel_tol=1e-12)
    return left == right
