"""What a job in Python may subscribe to, planned: a query's groups under the names of its SELECT list, or
rows.

The SELECT list has the columns of GROUP BY and aggregates of one state (SUM, COUNT, MIN, MAX), so that a
table of partial aggregates reads like the query. HAVING, ORDER BY and LIMIT are left to the job. With
WINDOWING n SLIDE m the groups are those of panes, and what is older than the window is forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from sqlglot import exp

from elf.errors import QueryError
from elf.fields import replace
from elf.ql.conditions import condition
from elf.ql.draft import Draft
from elf.ql.plan import Fragment, Plan
from elf.ql.planner import number_keys
from elf.ql.planner import plan as plan_query
from elf.ql.rules import apply_rules
from elf.ql.source import did_you_mean
from elf.ql.statements import Query
from elf.ql.states import collect
from elf.ql.templates import name as quoted
from elf.schema import Schema, alike
from elf.windows.kinds import Sliding

_LATER = {"distinct", "having", "qualify", "order", "limit", "offset"}


class Groups(Struct, frozen=True):
    """``keys`` and ``states`` pair a column of the fragment with its name in the SELECT list. ``panes``: of a
    window; 0 without one."""

    fragment: Fragment
    keys: tuple[tuple[str, str], ...] = ()
    states: tuple[tuple[str, str], ...] = ()
    panes: int = 0


def plan_groups(query: Query, schema: Schema, *, stream: str) -> Groups:
    """Raises ``QueryError``."""
    planned = plan_query(query, schema, stream=stream)
    if planned.join is not None and planned.join.side:
        raise QueryError("a job's query joins no streams: subscribe to both, and join them in the job")
    tree = query.tree
    if not isinstance(tree, exp.Select):
        raise QueryError("a job's query is one SELECT")
    draft = number_keys(apply_rules(Draft(query.source, tree, schema)))
    if draft.sets or draft.below is not None or _LATER & _said(query):
        raise QueryError(
            "a job's query has no subquery with groups, no grouping sets and nothing after GROUP BY but "
            "WINDOWING: the job decides when to flush, and what to make of the groups"
        )
    panes = _panes(planned)
    states = collect([output.value for output in draft.outputs])
    keys: dict[str, str] = {}
    named: dict[str, str] = {}
    for output in draft.outputs:
        column = states.column_of(output.value)
        if column is None:
            raise QueryError(
                f"{output.name}: a job's SELECT has the columns of GROUP BY, and SUM, COUNT, MIN and MAX "
                "by themselves (for an average take SUM and COUNT)"
            )
        (keys if column in planned.fragment.keys else named).setdefault(column, output.name)
    if set(keys) != set(planned.fragment.keys) or not keys:
        raise QueryError("a job's query needs a GROUP BY, and each of its columns in the SELECT list")
    if not named:
        raise QueryError("a job's query needs an aggregate; for rows subscribe(stream=…, columns=[…])")
    return Groups(planned.fragment, tuple(sorted(keys.items())), tuple(sorted(named.items())), panes)


def _panes(planned: Plan) -> int:
    """How many panes a window has; 0 without one."""
    if not planned.windows:
        return 0
    kinds, fragment = planned.windows, planned.fragment
    policies = (fragment.lateness_us, fragment.revise_us, fragment.changes_us, fragment.wait_us)
    plain = planned.trees == 1 and not (fragment.leap or fragment.mirror)
    if len(kinds) > 1 or type(kinds[0]) is not Sliding or set(policies) != {None} or not plain:
        raise QueryError(
            "the window of a job's query is WINDOWING n SLIDE m and no more, as in WINDOWING 300 SECONDS "
            "SLIDE 5 SECONDS: flush() has the groups of the last n, which slide by m"
        )
    return kinds[0].size_us // fragment.pane_us


def _said(query: Query) -> set[str]:
    return {name for name, value in query.tree.args.items() if value}


def plan_rows(columns: Sequence[str], where: str, schema: Schema, *, stream: str) -> Fragment:
    """The rows of a stream for which ``where`` holds, with these columns. Raises ``UserError``."""
    known = [column.name for column in schema.everything()]
    for name in columns:
        if name not in known:
            raise QueryError(f"stream {stream} has no column {name}{did_you_mean(name, known)}")
    planned = condition(where.strip() or "true", schema, stream=stream)
    wanted = dict.fromkeys([*columns, *(column.name for column in planned.columns)])
    if (pair := alike(wanted)) is not None:
        raise QueryError(f'columns "{pair[0]}" and "{pair[1]}": names must differ by more than case')
    names = ", ".join(f"r.{quoted(name, 'duckdb')}" for name in columns)
    rows = f"SELECT {names} FROM rows AS r"
    sql = f"{rows} WHERE {planned.where_sql}" if planned.where_sql else rows
    return replace(
        planned,
        columns=schema.chosen(wanted),
        map_sql=sql,
        spark_sql="",
        keys=(),
        states=(),
    )
