"""A plan with users' functions: *map* between WHERE and the grouping, *reduce* on the groups of each pane
before they are committed, *final* after all else."""

from __future__ import annotations

from elf.errors import UserError
from elf.fields import replace
from elf.ql.plan import Fragment, Function, Plan, Reduce
from elf.windows import Session


def with_function(plan: Plan, function: Function) -> Plan:
    """The same plan with this function over its rows, its groups, or the rows of its windows. Raises
    ``UserError``.
    """
    if function.kind == "final":
        return _with_final(plan, function)
    if function.kind == "reduce":
        return _with_reduce(plan, function)
    if plan.join is not None and plan.join.side:
        raise UserError("a map function over streams that are joined is not supported yet")
    first, *more = (_with(fragment, function) for fragment in (plan.fragment, *plan.more))
    return replace(plan, fragment=first, more=tuple(more))


def _with_final(plan: Plan, function: Function) -> Plan:
    """Sessions are many windows of one row each, as are windows of rows; approximate rows get their bounds
    after the final fragment."""
    if any(isinstance(kind, Session) for kind in plan.windows):
        raise UserError("a final function over sessions is not supported yet")
    if plan.fragment.count is not None:
        raise UserError("a final function over windows of rows is not supported yet")
    if plan.fragment.keep is not None:
        raise UserError("a final function over APPROXIMATE rows is not supported yet")
    return replace(plan, final=function)


def _with_reduce(plan: Plan, function: Function) -> Plan:
    """A root must have whole groups, each in one row whose columns have names."""
    fragment = plan.fragment
    if fragment.reduce is not None and fragment.reduce.function == function:
        return plan  # the function of the job that it reads
    if plan.reads:
        raise UserError("the groups are those of a job that it reads: SET FUNCTION reduce there")
    what = next((what for what, there in _not_whole(plan) if there), None)
    if what is not None:
        raise UserError(f"a reduce function over {what} is not supported yet")
    columns = tuple(pair for pair in plan.named if pair[0] in _columns(fragment))
    if {column for column, _ in columns} != set(_columns(fragment)):
        raise UserError(
            "a reduce function gets the columns of GROUP BY, and COUNT, SUM, MIN and MAX, as the SELECT list "
            "names them: put each of them there by itself, and no other aggregate (AVG is SUM and COUNT)"
        )
    return replace(plan, fragment=replace(fragment, first=None, reduce=Reduce(function, columns)))


def _columns(fragment: Fragment) -> tuple[str, ...]:
    return (*fragment.keys, *(state.name for state in fragment.states))


def _not_whole(plan: Plan) -> tuple[tuple[str, bool], ...]:
    fragment = plan.fragment
    return (
        ("streams that are joined, or windows with LAG,", plan.join is not None),
        ("several streams, whose groups meet at the master,", bool(plan.more)),
        ("sessions", plan.session_states is not None),
        ("windows of rows", fragment.count is not None),
        ("APPROXIMATE rows", fragment.keep is not None),
        ("early results (EMIT CHANGES)", fragment.changes_us is not None),
        ("aggregates of distinct values, percentiles and sketches", bool(fragment.cells)),
    )


def check_sides(plan: Plan) -> None:
    """Check the functions of jobs that are joined. Raises ``UserError``."""
    if plan.beside and any(one.reduce is not None for one in plan.unranged):
        raise UserError("JOIN JOB over a job with a reduce function is not supported yet")


def functions_of(plan: Plan) -> tuple[Function, ...]:
    """The functions of a job, each once."""
    reduces = (one.reduce.function for one in plan.unranged if one.reduce is not None)
    found = (*(one.function for one in plan.unranged), *reduces, plan.final)
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _with(fragment: Fragment, function: Function) -> Fragment:
    """WHERE is applied before the function, so the map does not apply it again."""
    map_sql = fragment.map_sql
    if fragment.tables:
        raise UserError("a map function over rows that are joined with a table is not supported yet")
    if fragment.count is not None:
        raise UserError("a map function may change how many rows there are: not with WINDOWING … ROWS")
    if fragment.where_sql:
        clause = f"WHERE {fragment.where_sql}"
        lines = map_sql.split("\n")
        map_sql = "\n".join("WHERE TRUE" if line.strip() == clause else line for line in lines)
        if fragment.where_sql in map_sql:
            raise UserError(
                "a map function over a query with a WHERE and aggregates of distinct values is not supported "
                "yet; leave the WHERE to the function"
            )
    direct = None if fragment.direct is None else replace(fragment.direct, where=())
    return replace(fragment, map_sql=map_sql, direct=direct, spark_sql="", function=function)
