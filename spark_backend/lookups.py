"""The functions of ``elf.ql.lookups`` in Spark, by the tables that are open in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

from agents.archive.contents import contents
from agents.archive.partitions import Target
from agents.lookups import LOOKUPS, Value
from elf.errors import UserError
from elf.ql.lookups import LOOKUPS as KNOWN
from elf.ql.lookups import lookups_in, sql_name
from elf.ql.plan import Plan
from elf.ql.render import TYPES


def register(spark: SparkSession, names: Sequence[str]) -> None:
    """Make functions known to a session.

    Args:
        spark (SparkSession): where they are called.
        names (Sequence[str]): of ``elf.ql.lookups.LOOKUPS``.

    Raises:
        UserError: when a table is not here.

    Example:
        >>> register(spark, [])
    """
    if why := LOOKUPS.lacking(names):
        raise UserError(why)
    for name in names:
        kind = TYPES["spark"][KNOWN[name].kind]
        spark.udf.register(sql_name(name), udf(_value(name, LOOKUPS.databases), kind, useArrow=False))


def _value(name: str, databases: tuple[str, ...]) -> Callable[[str | None], Value]:
    """For a process of Spark's, which opens the tables for itself: what this one has open stays here."""

    def value(text: str | None) -> Value:
        from agents.lookups import LOOKUPS

        LOOKUPS.open(databases)
        return LOOKUPS.value(name, text)

    return value


def editions(plan: Plan, archives: Sequence[tuple[str, str]], span: tuple[int, int] | None) -> set[str]:
    """Which editions of their tables the agents had whose lines are archived.

    Args:
        plan (Plan): what looks something up.
        archives (Sequence[tuple[str, str]]): path and stream of each.
        span (tuple[int, int] | None): from when to when, in µs since the epoch; None: all.

    Returns:
        set[str]: such as ``GeoLite2-City 2026-11-20``, of those tables that the plan uses.

    Raises:
        ArchiveError: when an archive cannot be listed.

    Example:
        >>> editions(plan, [], None)
        set()
    """
    used = {KNOWN[name].table for name in lookups_in(plan.spark_sql)}
    found: set[str] = set()
    for path, stream in archives:
        target = Target(path)
        folder = target.stream_folder(stream)
        for file in contents(target, stream, *(span or (None, None))).files:
            facts = target.facts(f"{folder}/{file.path}")
            told: dict[str, list[str]] = json.loads(facts.get("lookups", "{}"))
            found |= {edition for table, those in told.items() if table in used for edition in those}
    return found
