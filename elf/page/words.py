"""The words of ELF-QL, for completion."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

_STATEMENTS: Final = (
    "ALTER JOB ROLLBACK TO VERSION RESET PAUSE RESUME DROP CREATE OR REPLACE AS NOTIFY EMPTY SHOW JOBS "
    "STREAMS MEMBERS ARCHIVES OUTPUTS ALERTS TABLES AGGREGATES DESCRIBE EXPLAIN ANALYZE LATENCY "
    "ROUTES OFFLINE SUBSCRIBE ROWS OF WINDOW"
)
_WORD: Final = re.compile(r"\b[A-Z]{2,}\b")


@cache
def words() -> dict[str, object]:
    """``keywords``, and ``functions`` with ``name``, ``usage`` and ``about``."""
    from elf.ql.catalogue import CLAUSES, catalogue  # sqlglot: 10 MB, for who completes

    keywords = {*_STATEMENTS.split(), *(word for one in CLAUSES for word in _WORD.findall(one.usage))}
    functions = [
        {"name": one.name, "usage": one.usage, "about": one.about}
        for one in catalogue()
        if one.what in ("function", "aggregate") and one.name.isidentifier()
    ]
    return {"keywords": sorted(keywords), "functions": functions}
