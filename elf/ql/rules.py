"""From a parsed query to a bound one, in steps: the tuple ``RULES`` is the order, each step a pure function.

A draft goes through all of them; each reads the tree and fills in what it is about, or refuses the query
with a ``QueryError`` at the place. What comes out says everything that the three renderings need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sqlglot import exp

from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.bind_windows import duration_us, windows_of
from elf.ql.binder import BINDERS
from elf.ql.expressions import Aggregate, Expr, Ref, Slot, conjuncts, connect, is_constant, rewrite
from elf.ql.scope import Scope
from elf.ql.source import Source, start_of
from elf.schema import Schema
from elf.windows import Kind

EVENT_TIME_NAMES: Final = ("ts", "timestamp", "@timestamp", "time", "created_at")


@dataclass(frozen=True)
class Output:
    """One column of the result: its name, and its value over keys and aggregates."""

    name: str
    value: Expr


@dataclass(frozen=True)
class Order:
    """One item of ORDER BY. NULLs come last unless the query says otherwise."""

    value: Expr
    descending: bool
    nulls_first: bool


@dataclass(frozen=True)
class Draft:
    """A query on its way through the rules. Keys are bound expressions over ``rows``; what comes after them
    refers to them as slots ``k0``, ``k1`` … in the order of GROUP BY.
    """

    source: Source
    tree: exp.Select
    schema: Schema
    streams: tuple[str, ...] = ()
    windows: tuple[Kind, ...] = ()
    lateness_us: int | None = None
    where: tuple[Expr, ...] = ()
    keys: tuple[Expr, ...] = ()
    outputs: tuple[Output, ...] = ()
    having: Expr | None = None
    order: tuple[Order, ...] = ()
    limit: int | None = None
    aliases: dict[str, exp.Expr] = field(default_factory=dict)

    def scope(
        self, clause: str, *, aggregates: bool, aliases_first: bool = False, aliased: bool = True
    ) -> Scope:
        aliases = self.aliases if aliased else {}
        keys = self.keys if aggregates and aliased else None
        return Scope(
            self.source,
            self.schema,
            clause,
            aggregates,
            streams=self.streams,
            aliases=aliases,
            aliases_first=aliases_first,
            keys=keys,
            binders=BINDERS,
        )


Rule = Callable[[Draft], Draft]

_KNOWN_CLAUSES: Final = frozenset(
    {"expressions", "from_", "where", "group", "having", "order", "limit", "windowing", "lateness"}
)
_REFUSED: Final[dict[str, str]] = {
    "with_": "WITH (a common table expression)",
    "distinct": "SELECT DISTINCT",
    "joins": "a join",
    "laterals": "LATERAL",
    "qualify": "QUALIFY",
    "offset": "OFFSET",
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
        if key == "joins" and not (place.args.get("kind") or place.args.get("on") or place.args.get("using")):
            feature = "several streams in FROM"
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
    if not isinstance(table, exp.Table):
        raise draft.source.at(table, f"{_table_feature(table)} in FROM is not supported yet")
    if table.args.get("db"):
        raise draft.source.at(table, "a stream's name has no dots; quote it if it does")
    for part, value in table.args.items():
        if value and part not in ("this", "alias"):
            raise draft.source.at(table, f"{_REFUSED.get(part, part.upper())} in FROM is not supported yet")
    if table.alias_column_names:
        raise draft.source.at(table, "names for columns in FROM are not supported yet")
    names = [table.name] if isinstance(table.this, exp.Identifier) else []
    return replace(draft, streams=(*names, *([table.alias] if table.alias else [])))


def _table_feature(table: exp.Expr) -> str:
    return "a subquery" if isinstance(table, exp.Subquery) else table.key.upper()


def read_window(draft: Draft) -> Draft:
    """WINDOWING and LATENESS."""
    clause, lateness = draft.tree.args.get("windowing"), draft.tree.args.get("lateness")
    if clause is None:
        if lateness is not None:
            raise draft.source.at(lateness, "LATENESS needs a window: add WINDOWING …")
        return draft
    if draft.schema.event_time is None:
        names = ", ".join(EVENT_TIME_NAMES)
        message = (
            f"a window needs event time, which is a timestamp column named {names} (or as the config says)"
        )
        raise draft.source.at(clause, f"{message}; this stream has none")
    return replace(
        draft,
        windows=windows_of(draft.source, clause),
        lateness_us=None if lateness is None else duration_us(draft.source, lateness.this),
    )


def read_aliases(draft: Draft) -> Draft:
    """Names of the SELECT list, for the clauses that may use them."""
    aliases: dict[str, exp.Expr] = {}
    for item in draft.tree.expressions:
        if isinstance(item, exp.Alias):
            aliases.setdefault(item.alias.lower(), item.this)
    return replace(draft, aliases=aliases)


def bind_where(draft: Draft) -> Draft:
    """WHERE, as conditions that must all hold."""
    clause = draft.tree.args.get("where")
    if clause is None:
        return draft
    condition = draft.scope("WHERE", aggregates=False).condition(clause.this, "WHERE")
    return replace(draft, where=conjuncts(condition))


def bind_keys(draft: Draft) -> Draft:
    """GROUP BY: columns, expressions, aliases and ordinals."""
    clause = draft.tree.args.get("group")
    if clause is None:
        return draft
    for name, value in clause.args.items():
        if value and name != "expressions":
            feature = "GROUP BY ALL" if name == "all" else name.replace("_", " ").upper()
            raise draft.source.at(clause, f"{feature} is not supported yet")
    keys: dict[Expr, None] = {}
    scope = draft.scope("GROUP BY", aggregates=False)
    for node in clause.expressions:
        if isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets):
            feature = "GROUPING SETS" if isinstance(node, exp.GroupingSets) else node.key.upper()
            raise draft.source.at(node, f"{feature} is not supported yet")
        key = scope.bind(_ordinal(draft, node, "GROUP BY") or node)
        if is_constant(key):
            raise draft.source.at(node, "GROUP BY a constant makes no groups; leave it out")
        keys[key] = None
    return replace(draft, keys=tuple(keys))


def _ordinal(draft: Draft, node: exp.Expr, clause: str) -> exp.Expr | None:
    """The item of the SELECT list that a number in GROUP BY or ORDER BY means; None for anything else."""
    if not (isinstance(node, exp.Literal) and not node.is_string):
        return None
    items = draft.tree.expressions
    if not node.name.isdigit() or not 1 <= int(node.name) <= len(items):
        raise draft.source.at(node, f"{clause} {node.name}: the SELECT list has items 1 to {len(items)}")
    item: exp.Expr = items[int(node.name) - 1]
    return item.this if isinstance(item, exp.Alias) else item


def bind_outputs(draft: Draft) -> Draft:
    """The SELECT list, over keys and aggregates, under unique names."""
    if not draft.tree.expressions:
        raise draft.source.at(draft.tree, "the SELECT list is empty")
    scope = draft.scope("SELECT", aggregates=True, aliased=False)
    outputs = []
    grouped = bool(draft.keys) or _has_aggregates(draft)
    taken = {"window_start", "window_end"} if draft.windows else set()
    for item in draft.tree.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            raise draft.source.at(item, "SELECT * (raw rows) is not supported yet")
        value = scope.bind(item.this if isinstance(item, exp.Alias) else item)
        if not grouped:
            raise draft.source.at(
                item, "raw rows (a SELECT without an aggregate and without GROUP BY) is not supported yet"
            )
        name = _unique(_output_name(draft.source, item, value), taken)
        outputs.append(Output(name, _over_groups(draft, value, "SELECT")))
    return replace(draft, outputs=tuple(outputs))


def _has_aggregates(draft: Draft) -> bool:
    """Whether the query makes one group of everything: an aggregate in SELECT, HAVING or ORDER BY."""
    nodes = [*draft.tree.expressions, draft.tree.args.get("having"), draft.tree.args.get("order")]
    calls = (call for node in nodes if node is not None for call in node.find_all(exp.Anonymous))
    return any(call.name.lower() in AGGREGATES for call in calls)


def _output_name(source: Source, item: exp.Expr, value: Expr) -> str:
    """The alias, else the column's own name, else the text as it was written."""
    if isinstance(item, exp.Alias):
        return item.alias
    if isinstance(value, Ref):
        return value.name
    return " ".join(source.text[item.meta["from"] : item.meta["to"] + 1].split())


def _unique(name: str, taken: set[str]) -> str:
    candidate, number = name, 0
    while candidate.lower() in taken:
        number += 1
        candidate = f"{name}_{number}"
    taken.add(candidate.lower())
    return candidate


def bind_having(draft: Draft) -> Draft:
    """HAVING."""
    clause = draft.tree.args.get("having")
    if clause is None:
        return draft
    condition = draft.scope("HAVING", aggregates=True).condition(clause.this, "HAVING")
    return replace(draft, having=connect("and", conjuncts(_over_groups(draft, condition, "HAVING"))))


def bind_order(draft: Draft) -> Draft:
    """ORDER BY (SORT BY is the same): aliases, ordinals, expressions over keys and aggregates."""
    clause = draft.tree.args.get("order")
    if clause is None:
        return draft
    items = []
    for ordered in clause.expressions:
        for part, value in ordered.args.items():
            if value and part not in ("this", "desc", "nulls_first"):
                raise draft.source.at(ordered, f"ORDER BY … {part.upper()} is not supported yet")
        node = ordered.this
        plain_name = isinstance(node, exp.Column)
        scope = draft.scope("ORDER BY", aggregates=True, aliases_first=plain_name)
        value = _over_groups(draft, scope.bind(_ordinal(draft, node, "ORDER BY") or node), "ORDER BY")
        items.append(Order(value, bool(ordered.args.get("desc")), bool(ordered.args.get("nulls_first"))))
    return replace(draft, order=tuple(items))


def read_limit(draft: Draft) -> Draft:
    """LIMIT, a constant."""
    clause = draft.tree.args.get("limit")
    if clause is None:
        return draft
    if isinstance(clause, exp.Fetch) or clause.args.get("limit_options") or clause.expressions:
        raise draft.source.at(clause, "FETCH, LIMIT BY and LIMIT … PERCENT are not supported yet")
    if clause.args.get("offset"):
        raise draft.source.at(clause, "OFFSET is not supported yet")
    count = clause.expression
    if not isinstance(count, exp.Literal) or count.is_string or not count.name.isdigit():
        raise draft.source.at(count, "LIMIT takes a whole number")
    return replace(draft, limit=int(count.name))


def _over_groups(draft: Draft, expr: Expr, clause: str) -> Expr:
    """``expr`` with keys as slots. A column that is neither a key nor inside an aggregate has no single value
    a group.
    """
    slots = {key: Slot(f"k{index}", key.kind) for index, key in enumerate(draft.keys)}

    def change(part: Expr) -> Expr | None:
        if part in slots:
            return slots[part]
        if isinstance(part, Aggregate):
            return part
        if isinstance(part, Ref):
            message = f'column "{part.name}" in {clause} must be in GROUP BY or inside an aggregate'
            raise draft.source.error(message, part.at)
        return None

    return rewrite(expr, change)


RULES: Final[tuple[Rule, ...]] = (
    refuse_unsupported,
    read_from,
    read_window,
    read_aliases,
    bind_where,
    bind_keys,
    bind_outputs,
    bind_having,
    bind_order,
    read_limit,
)
"""The order of the steps."""


def apply_rules(draft: Draft) -> Draft:
    for rule in RULES:
        draft = rule(draft)
    return draft
