"""From a parsed query to a bound one, in steps: the tuple ``RULES`` is the order, each step a pure function.

A draft goes through all steps. Each reads the tree and fills in its part, or refuses the query with a
``QueryError`` at the place. The result says everything that the three renderings need.
"""

from __future__ import annotations

from typing import Final

from sqlglot import exp

from elf.fields import TREES_MAX, replace
from elf.ql.bind_windows import duration_us, emission_of, stragglers_of, windows_of
from elf.ql.dialect import Windowings
from elf.ql.draft import Draft, Rule, about, has_aggregates, ordinal, timed
from elf.ql.expressions import Expr, Over, Ref, conjuncts, is_constant, walk
from elf.ql.grouping import SETS_MAX, SetsNode, sets_in, sets_of
from elf.ql.job_queries import has_larger, join_job, of_job, with_windows_of
from elf.ql.rules_after import (
    bind_having,
    bind_order,
    bind_outputs,
    bind_qualify,
    output_name,
    read_approximate,
    read_lags,
    read_limit,
)
from elf.ql.rules_graph import GRAPH, read_graph, vertices_of
from elf.ql.rules_joins import is_comma, is_file, read_joins
from elf.ql.rules_members import read_members
from elf.ql.rules_union import branches_of
from elf.ql.sampling import read_places, read_sample
from elf.ql.scope import Scope
from elf.ql.source import JOB, start_of
from elf.schema import EVENT_TIMES
from elf.windows import Counted, Kind, Session

_KNOWN_CLAUSES: Final = frozenset(
    {"expressions", "from_", "joins", "where", "group", "having", "qualify", "order", "limit", "with_"}
    | {"offset", "distinct", "windowing", "lateness", "emit", "stragglers", "trees", "approximate", "since"}
    | {"places", "sampling", "within", "priority", "graph"}
)
_LATER: Final = ("having", "qualify", "order", "limit", "offset")
"""Clauses about groups."""
_REFUSED: Final[dict[str, str]] = {
    "laterals": "LATERAL",
    "sample": "TABLESAMPLE",
    "windows": "WINDOW … AS",
    "into": "SELECT INTO",
    "locks": "FOR UPDATE",
    "hint": "a hint",
    "distribute": "DISTRIBUTE BY",
    "cluster": "CLUSTER BY",
    "connect": "CONNECT BY",
    "match": "MATCH_RECOGNIZE",
    "pivots": "PIVOT",
}


def refuse_unsupported(draft: Draft) -> Draft:
    """Clauses that the language will have, or that SQL has, but that are not there yet."""
    for key, value in draft.tree.args.items():
        if not value or key in _KNOWN_CLAUSES:
            continue
        place = value[0] if isinstance(value, list) else value
        feature = _REFUSED.get(key, key.rstrip("_").upper())
        at = start_of(place) if isinstance(place, exp.Expr) else None
        raise draft.source.error(
            f"{feature} is not supported yet", at if at is not None else start_of(draft.tree)
        )
    return draft


def read_from(draft: Draft) -> Draft:
    """FROM: one stream, or ``*``; its name and its alias may stand before a column."""
    clause = draft.tree.args.get("from_")
    if clause is None:
        raise draft.source.error(
            "a query needs FROM: the name of a stream, or *", len(draft.source.text.rstrip())
        )
    table = clause.this
    name = table.name.lower() if isinstance(table, exp.Table) else ""
    inner = table.this if isinstance(table, exp.Subquery) else draft.ctes.get(name)
    others = [join.this for join in draft.tree.args.get("joins") or [] if is_comma(join)]
    queries = [other for other in others if other.name.lower() in draft.ctes]
    if queries or (inner is not None and others):
        raise draft.source.at(
            (queries or others)[0], "a comma in FROM stands between streams, not subqueries"
        )
    if inner is not None and not table.args.get("db"):
        return _over(draft, table, inner)
    if not isinstance(table, exp.Table):
        raise draft.source.at(table, f"{table.key.upper()} in FROM is not supported yet")
    if isinstance(table.this, exp.Func):
        raise draft.source.at(table, "a function in FROM is not supported: name a stream there, or *")
    if is_file(table):
        raise draft.source.at(
            table,
            f"a table of a job is read alone (FROM {table.name}), or joined to a stream: FROM stream JOIN "
            f"TABLE {table.name} AS p ON …"
            if table.meta.get("table")
            else f"a file is joined to a stream: FROM stream JOIN '{table.name}' AS p ON …",
        )
    if table.args.get("db"):
        raise draft.source.at(table, "a stream's name has no dots; quote it if it does")
    for part, value in table.args.items():
        if value and part not in ("this", "alias"):
            raise draft.source.at(table, f"{_REFUSED.get(part, part.upper())} in FROM is not supported yet")
    if table.alias_column_names:
        raise draft.source.at(table, "names for columns in FROM are not supported yet")
    tables = [table, *others]
    names = [part for one in tables for part in (one.name, one.alias) if part]
    return replace(draft, streams=tuple(dict.fromkeys(names)))


def read_job_joins(draft: Draft) -> Draft:
    """JOIN JOB: the rows of other jobs beside those of the one after FROM."""
    for join in draft.tree.args.get("joins") or []:
        table = join.this
        if isinstance(table, exp.Subquery) and JOB in table.this.meta:
            draft = join_job(draft, join, apply_rules(_fresh(of_job(draft, table.this))))
        elif table.meta.get("job"):
            raise draft.source.at(table, "there are no jobs here: JOIN JOB is for statements to a fleet")
    return draft


@about("with_")
def read_with(draft: Draft, clause: exp.Expr) -> Draft:
    """WITH: queries that have a name."""
    if clause.args.get("recursive"):
        raise draft.source.at(clause, "WITH RECURSIVE would need unbounded state and is not supported")
    ctes = dict(draft.ctes)
    for cte in clause.expressions:
        if cte.alias.lower() in ctes:
            raise draft.source.at(cte, f"{cte.alias} is named twice in WITH")
        ctes[cte.alias.lower()] = cte.this
    return replace(draft, ctes=ctes)


def _over(draft: Draft, table: exp.Expr, inner: exp.Expr) -> Draft:
    """FROM a subquery. Without groups it is part of this query; with groups this query is over its rows."""
    name = table.name.lower() if isinstance(table, exp.Table) else ""
    names = tuple(dict.fromkeys(part for part in (table.alias, name) if part))
    below = replace(draft, ctes={other: tree for other, tree in draft.ctes.items() if other != name})
    if isinstance(inner, exp.SetOperation):
        over, columns = branches_of(below, inner, raw_columns)
        return replace(over, tree=draft.tree, ctes=draft.ctes, streams=names, derived=columns)
    if not isinstance(inner, exp.Select):
        raise draft.source.at(inner, f"{inner.key.upper()} in a subquery is not supported yet")
    read = JOB in inner.meta  # a job's query in the place of its name
    below = _fresh(of_job(below, inner) if read else replace(below, tree=inner))
    if _has_groups(below):
        below = apply_rules(below)
        columns = {output.name: Ref(output.name, output.value.kind) for output in below.outputs}
        schema = replace(draft.schema, event_time=None)
        over = replace(draft, streams=names, derived=columns, below=below, schema=schema)
        if GRAPH in inner.meta:
            over = vertices_of(over, below, inner.meta[GRAPH])
    else:
        columns, below = raw_columns(below)
        over = replace(
            draft,
            streams=names,
            derived=columns,
            below=below.below,
            schema=below.schema,
            where=below.where,
            joins=tuple(replace(joined, name="") for joined in below.joins),
            beside=below.beside,
            branches=below.branches,
            pane_us=below.pane_us,
        )
    return with_windows_of(over, below, table, inner) if read else timed(over, below)


def _has_groups(draft: Draft) -> bool:
    """Whether a subquery groups rows; or takes some of the groups of another, in an order, or puts them
    beside one another (OVER)."""
    args = draft.tree.args
    if args.get("group") or args.get("distinct") or has_aggregates(draft):
        return True
    ranks = any(item.find(exp.Window) is not None for item in draft.tree.expressions)
    if not ranks and not any(args.get(part) for part in _LATER):
        return False
    return read_from(read_window(read_with(draft))).below is not None


def _fresh(draft: Draft) -> Draft:
    """A query inside another: its streams and windows, but nothing that the outer query does with it."""
    fresh = Draft(draft.source, draft.tree, draft.schema, ctes=draft.ctes)
    fresh = replace(fresh, tables=draft.tables, schemas=draft.schemas, functions=draft.functions)
    fresh = replace(fresh, pane_us=draft.pane_us, owns=draft.owns)
    return timed(fresh, draft)


def raw_columns(draft: Draft) -> tuple[dict[str, Expr], Draft]:
    """A subquery without groups: its columns, and what it is over."""
    below = _fresh(draft)
    for rule in RULES[: RULES.index(bind_where) + 1]:
        below = rule(below)
    for part in _LATER:
        clause = draft.tree.args.get(part)
        if clause is not None:
            raise below.source.at(
                clause,
                f"{'ORDER BY' if part == 'order' else part.upper()} in a subquery of raw rows would need "
                "unbounded state; it belongs after a GROUP BY, or in the outer query",
            )
    return _columns(below), below


def _columns(draft: Draft) -> dict[str, Expr]:
    """What a subquery without groups calls its columns."""
    found: dict[str, Expr] = {}
    scope = draft.scope("SELECT", aggregates=False, aliased=False)
    for item in draft.tree.expressions:
        if isinstance(item, exp.Star):
            if draft.derived is not None:
                found.update(draft.derived)
            else:
                found.update({one.name: Ref(one.name, one.type) for one in draft.schema.columns})
            for joined in draft.joins:
                for column in joined.table.columns:
                    if not joined.name or column.name.lower() in joined.merged:
                        continue
                    if column.name in found:
                        raise draft.source.at(
                            item, f'two columns are called "{column.name}"; name those needed'
                        )
                    found[column.name] = Ref(column.name, column.type, 0, joined.place)
            continue
        value = scope.bind(item.this if isinstance(item, exp.Alias) else item)
        if any(isinstance(part, Over) for part in walk(value)):
            raise draft.source.at(item, "OVER is over groups, and these are raw rows: add GROUP BY")
        name = output_name(scope, item, value)
        if name in found:
            raise draft.source.at(item, f'two columns are called "{name}"; name one with AS')
        found[name] = value
    return found


def read_window(draft: Draft) -> Draft:
    """WINDOWING, LATENESS, EMIT and STRAGGLERS."""
    clause, lateness = draft.tree.args.get("windowing"), draft.tree.args.get("lateness")
    emit, stragglers = draft.tree.args.get("emit"), draft.tree.args.get("stragglers")
    if clause is None:
        for word, given in (("LATENESS", lateness), ("EMIT", emit), ("STRAGGLERS", stragglers)):
            if given is not None and not draft.windows:
                raise draft.source.at(given, f"{word} needs a window: add WINDOWING …")
            if given is not None:
                raise draft.source.at(given, f"{word} goes with the window: say it beside WINDOWING")
        return draft
    windows = _windows(draft, clause)
    counts = any(isinstance(kind, Counted) for kind in windows)
    if counts and lateness is not None:
        raise draft.source.at(
            lateness, "windows of rows go by the order of lines, so none is late: no LATENESS"
        )
    revise_us, changes_us = draft.revise_us, draft.changes_us
    if emit is not None:
        revise_us, changes_us = emission_of(draft.source, emit, windows)
    wait_us, leap, mirror = draft.wait_us, draft.leap, draft.mirror
    if stragglers is not None:
        wait_us, policy = stragglers_of(draft.source, stragglers, windows)
        leap, mirror = policy == "leap", policy == "mirror"
    if leap and revise_us is not None:
        raise draft.source.at(
            clause if stragglers is None else stragglers,
            "LEAP and EMIT FINAL REVISE contradict one another: what was leapt over is never revised; "
            "choose one",
        )
    lateness_us = _lateness(draft, lateness, counts)
    draft = replace(draft, windows=windows, lateness_us=lateness_us, revise_us=revise_us)
    return replace(draft, changes_us=changes_us, wait_us=wait_us, leap=leap, mirror=mirror)


def _windows(draft: Draft, clause: Windowings) -> tuple[Kind, ...]:
    """The kinds of WINDOWING, which occurs once in a query."""
    if draft.schema.event_time is None:
        names = ", ".join(EVENT_TIMES)
        message = (
            f"a window needs event time, which is a timestamp column named {names}, or the one that "
            "--timestamp names (in a fleet: timestamp, of the stream)"
        )
        raise draft.source.at(clause, f"{message}; this stream has none")
    windows = windows_of(draft.source, clause)
    if draft.windows not in ((), windows):
        raise draft.source.at(clause, "this window is not that of the outer query; say it once, at the end")
    return windows


def _lateness(draft: Draft, clause: exp.Expr | None, counts: bool) -> int | None:
    if counts:
        return 0
    return draft.lateness_us if clause is None else duration_us(draft.source, clause.this)


@about("trees")
def read_trees(draft: Draft, clause: exp.Expr) -> Draft:
    """TREES: over how many reduction trees the groups are spread."""
    text = str(clause.this)
    if not text.isdigit() or not 1 <= int(text) <= TREES_MAX:
        raise draft.source.at(clause, f"TREES takes a whole number from 1 to {TREES_MAX}")
    if draft.counts and int(text) > 1:
        raise draft.source.at(clause, "TREES does not go with windows of rows: leave it out")
    return replace(draft, trees=int(text))


def read_aliases(draft: Draft) -> Draft:
    """Names of the SELECT list, for the clauses that may use them."""
    aliases: dict[str, exp.Expr] = {}
    for item in draft.tree.expressions:
        if isinstance(item, exp.Alias):
            aliases.setdefault(item.alias.lower(), item.this)
    return replace(draft, aliases=aliases)


@about("where")
def bind_where(draft: Draft, clause: exp.Expr) -> Draft:
    """WHERE, as conditions that must all hold."""
    condition = draft.scope("WHERE", aggregates=False).condition(clause.this, "WHERE")
    return replace(draft, where=(*draft.where, *conjuncts(condition)))


@about("group")
def bind_keys(draft: Draft, clause: exp.Expr) -> Draft:
    """GROUP BY: columns, expressions, aliases and ordinals."""
    for name, value in clause.args.items():
        if value and name != "expressions":
            feature = "GROUP BY ALL" if name == "all" else f"WITH {name.upper()}"
            hint = f"; write GROUP BY {name.upper()} (a, b)" if name in ("rollup", "cube") else ""
            raise draft.source.at(clause, f"{feature} is not supported{hint or ' yet'}")
    some = next((node for node in clause.expressions if isinstance(node, SetsNode)), None)
    if some is not None and draft.below is None and any(isinstance(kind, Session) for kind in draft.windows):
        raise draft.source.at(
            some,
            "sessions are those of a whole key, so they have no subtotals; make a job for each set of keys",
        )
    if sets_in(clause.expressions) > SETS_MAX:
        raise draft.source.at(clause, f"more than {SETS_MAX} grouping sets are not supported")
    scope = draft.scope("GROUP BY", aggregates=False)
    sets = [[_key(draft, node, scope) for node in nodes] for nodes in sets_of(clause.expressions)]
    keys = dict.fromkeys(key for one in sets for key in one)
    numbers = {key: number for number, key in enumerate(keys)}
    numbered = tuple(frozenset(numbers[key] for key in one) for one in sets)
    return replace(draft, keys=tuple(keys), sets=numbered if len(numbered) > 1 or not all(numbered) else ())


def _key(draft: Draft, node: exp.Expr, scope: Scope) -> Expr:
    key = scope.bind(ordinal(draft, node, "GROUP BY") or node)
    if is_constant(key):
        raise draft.source.at(node, "GROUP BY a constant makes no groups; leave it out")
    return key


@about("distinct")
def read_distinct(draft: Draft, clause: exp.Expr) -> Draft:
    """SELECT DISTINCT: without groups, the SELECT list gives the groups."""
    if clause.args.get("on"):
        raise draft.source.at(
            clause.args["on"],
            "DISTINCT ON is not supported; write QUALIFY ROW_NUMBER() OVER (PARTITION BY …) = 1",
        )
    if draft.keys or has_aggregates(draft):
        return replace(draft, distinct=True)
    scope = draft.scope("SELECT DISTINCT", aggregates=False, aliased=False)
    items = [item.this if isinstance(item, exp.Alias) else item for item in draft.tree.expressions]
    bound = [scope.bind(item) for item in items if not isinstance(item, exp.Star)]
    keys = tuple(dict.fromkeys(key for key in bound if not is_constant(key)))
    return replace(draft, keys=keys, distinct=not keys and draft.below is not None)


def read_plain(draft: Draft) -> Draft:
    """A SELECT without groups over a query with groups: its rows as they are."""
    if draft.below is None or draft.keys or draft.sets or has_aggregates(draft):
        return draft
    if has_larger(draft):
        raise draft.source.at(
            draft.tree.args["windowing"],
            "a row of a smaller window is no row of a larger one: add GROUP BY, or leave WINDOWING out",
        )
    columns = [part for value in (draft.derived or {}).values() for part in walk(value)]
    keys = dict.fromkeys(part for part in columns if isinstance(part, Ref))
    for joined in draft.joins:
        keys |= {Ref(one.name, one.type, 0, joined.place): None for one in joined.table.columns}
    return replace(draft, keys=tuple(keys), plain=True)


RULES: Final[tuple[Rule, ...]] = (
    refuse_unsupported,
    read_graph,
    read_places,
    read_with,
    read_window,
    read_from,
    read_joins,
    read_job_joins,
    read_sample,
    read_aliases,
    read_members,
    bind_where,
    bind_keys,
    read_distinct,
    read_plain,
    read_trees,
    bind_outputs,
    bind_having,
    bind_qualify,
    bind_order,
    read_lags,
    read_limit,
    read_approximate,
)
"""The order of the steps."""


def apply_rules(draft: Draft) -> Draft:
    for rule in RULES:
        draft = rule(draft)
    return draft
