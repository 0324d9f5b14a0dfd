"""``FROM access SAMPLE 1 %`` and ``SAMPLE BY c_ip 1 %``: some rows stand for all, and each estimate says how
far it may be off. ``FROM access ON place = 'eu'``: the rows of agents with such labels.

Both are written out in the language itself before SELECT and WHERE are bound, so agents, windows and
Spark read one query. A row is in the sample where the md5 of its key (or of the whole line) is below the
share, so each agent, each day and Spark choose the same keys, and all rows of a key go together.

COUNT and SUM are divided by the share; AVG stays. Beside each stands half the width of its interval of 99 %
(``elf.paos.builtin``), which is made of 16 parts of the keys, told by another digit of the md5. A key that is
counted itself, COUNT(DISTINCT key), is in the sample or not by itself, so there the number of keys says it.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final

from sqlglot import exp

from elf.errors import QueryError
from elf.fields import replace
from elf.paos.builtin import T_99
from elf.ql.bind_aggregates import AGGREGATES
from elf.ql.bind_intervals import Interval
from elf.ql.dialect import Elf, Sample
from elf.ql.draft import Draft, about, ordinal
from elf.ql.expressions import Ref, walk
from elf.ql.grouping import nodes_of
from elf.ql.rules_joins import is_comma, is_file
from elf.schema import LINE

_DIGITS: Final = 8
"""Of the md5, which choose; the next one is the part."""
_DIGEST: Final = "MD5(COALESCE(CAST(x_ AS STRING), ''))"
ERROR: Final = "_error"
"""What the name of an estimate's interval ends with."""


@about("places")
def read_places(draft: Draft, clause: exp.Expr) -> Draft:
    """ON after FROM: labels of agents, as conditions of WHERE."""
    holder = exp.Paren(this=clause.this.copy())
    for named in list(holder.find_all(exp.Column)):
        if len(named.parts) > 1:
            raise draft.source.at(named, "ON after FROM is about labels of agents: write their bare names")
        label = exp.column(named.this.copy(), table="_labels")
        label.meta.update(named.meta)
        named.replace(label)
    return _where(draft, holder.this, "places")


@about("sampling")
def read_sample(draft: Draft, clause: Sample) -> Draft:
    """SAMPLE: the query of estimates over the rows of the sample. Raises ``QueryError``."""
    share = _share(draft, clause)
    _check(draft, clause)
    tree = draft.tree.copy()
    draft = replace(draft, tree=tree)
    _name_places(draft)
    estimates = _Estimates(draft, clause.args.get("by"), share)
    if estimates.groups_by_key():
        text = "counts a group of its own key as a whole or not at all: sample lines, or by another key"
        raise draft.source.at(clause, f"SAMPLE {text}")
    items: list[exp.Expr] = []
    for item in list(tree.expressions):
        aliased = isinstance(item, exp.Alias)
        value = item.this if aliased else item
        name = item.alias if aliased else _written(draft, value)
        interval = estimates.interval(value)
        estimated = estimates.of(value)
        items.append(exp.alias_(estimated, name, quoted=True) if aliased or estimated is not value else item)
        if interval is not None:
            items.append(exp.alias_(interval, name + ERROR, quoted=True))
    tree.set("expressions", items)
    for part in ("having", "qualify"):
        if (condition := tree.args.get(part)) is not None:
            condition.set("this", estimates.of(condition.this))
    for ordered in () if tree.args.get("order") is None else tree.args["order"].expressions:
        ordered.set("this", estimates.of(ordered.this))
    if not estimates.found:
        raise draft.source.at(clause, "SAMPLE estimates COUNT, SUM and AVG, and this query has none of them")
    below = f"{int(share * 16**_DIGITS):0{_DIGITS}x}"
    return _where(draft, _made(f"{_DIGEST} < '{below}'", x_=estimates.key), "sampling")


def _name_places(draft: Draft) -> None:
    """Numbers in GROUP BY and ORDER BY are those of the items that were written."""
    order = draft.tree.args.get("order")
    nodes = [(node, "GROUP BY") for node in _grouped(draft)]
    nodes += [] if order is None else [(one.this, "ORDER BY") for one in order.expressions]
    for node, clause in nodes:
        if (item := ordinal(draft, node, clause)) is not None:
            named = exp.Paren(this=item.copy())  # so that ORDER BY takes it for no alias
            named.meta.update(node.meta)
            node.replace(named)


def _grouped(draft: Draft) -> list[exp.Expr]:
    group = draft.tree.args.get("group")
    return [] if group is None else list(nodes_of(group.expressions))


def _written(draft: Draft, item: exp.Expr) -> str:
    """The text of an item without a name, which is its name."""
    if "from" not in item.meta:
        return ""
    return " ".join(draft.source.text[item.meta["from"] : item.meta["to"] + 1].split())


def _share(draft: Draft, clause: Sample) -> Fraction:
    try:
        share = Fraction(clause.name) / 100
    except ValueError:
        share = Fraction()
    if not Fraction(1, 16**_DIGITS) <= share < 1:
        raise draft.source.at(clause, "SAMPLE takes more than 0 % and less than 100 %")
    return share


def _check(draft: Draft, clause: Sample) -> None:
    """Raises ``QueryError`` where a sample would say something else than it seems to."""
    tree = draft.tree
    table = tree.args["from_"].this if tree.args.get("from_") is not None else None
    window = tree.args.get("windowing")
    kinds = {kind.args["kind"] for kind in window.expressions} if window is not None else set()
    wrong = {
        "stands in the outermost query: what is computed of estimates has no interval": (
            tree.parent is not None or tree.args.get("with_") is not None
        ),
        "stands after the name of a stream": not isinstance(table, exp.Table),
        "is of a stream's rows, not of a job's": isinstance(table, exp.Table) and table.meta.get("job"),
        "does not go with sessions and windows of rows, whose ends depend on all rows": (
            kinds & {"session", "rows"}
        ),
        "does not go with joins of streams and jobs, whose rows are not chosen together": any(
            not (is_comma(join) or is_file(join.this)) for join in tree.args.get("joins") or []
        ),
        "does not go with SELECT DISTINCT": tree.args.get("distinct"),
        "does not go with APPROXIMATE": tree.args.get("approximate"),
    }
    for why, found in wrong.items():
        if found:
            raise draft.source.at(clause, f"SAMPLE {why}")


def _where(draft: Draft, condition: exp.Expr, clause: str) -> Draft:
    """With one more condition in WHERE, and without the clause that it is made of."""
    tree = draft.tree.copy()
    there = tree.args.get("where")
    both = condition if there is None else exp.And(this=exp.Paren(this=there.this), expression=condition)
    tree.set("where", exp.Where(this=both))
    tree.set(clause, None)
    return replace(draft, tree=tree)


def _call(node: exp.Expr) -> exp.Anonymous | None:
    """The aggregate of ``a(x)`` or ``a(x) FILTER (WHERE c)``."""
    call = node.this if isinstance(node, exp.Filter) else node
    return call if isinstance(call, exp.Anonymous) and call.name.lower() in AGGREGATES else None


class _Estimates:
    """What stands in the place of aggregates. ``found``: whether anything was estimated."""

    def __init__(self, draft: Draft, by: exp.Expr | None, share: Fraction) -> None:
        self._draft = draft
        self._of_lines = by is None
        self.key = exp.column(LINE) if by is None else by
        named = {item.alias.lower(): item.this for item in draft.tree.expressions[::-1] if item.alias}
        self._scope = replace(draft, aliases=named).scope("SAMPLE BY", aggregates=False)
        self._bound = self._scope.bind(self.key)
        self._weight = 1 / share
        self._rest = float(1 - share) ** 0.5
        self.found = False

    def groups_by_key(self) -> bool:
        """Whether all rows of a group have one key."""
        scope = replace(self._scope, clause="GROUP BY")
        keys = {scope.bind(node) for node in _grouped(self._draft)}
        columns = {part for part in walk(self._bound) if isinstance(part, Ref)}
        return bool(keys) and (self._bound in keys or columns <= keys)

    def of(self, node: exp.Expr) -> exp.Expr:
        """An expression with its aggregates estimated. Raises ``QueryError``."""
        over = isinstance(node, exp.Window)  # MAX(COUNT(*)) OVER (…): MAX is of groups
        if not over and (call := _call(node)) is not None:
            return self._estimate(node, call)
        if isinstance(node, exp.Anonymous) and node.name.lower() in self._draft.owns:
            raise self._refused(node, node.name)
        inside = list(node.iter_expressions())
        if over and _call(node.this) is not None:
            inside = [*inside[1:], *node.this.iter_expressions()]
        for child in inside:
            estimated = self.of(child)
            if estimated is not child:
                child.replace(estimated)
        return node

    def _refused(self, node: exp.Expr, what: str) -> QueryError:
        text = f"SAMPLE estimates COUNT, SUM and AVG; {what.upper()} of some rows is not that of all"
        return self._draft.source.at(node, text)

    def _estimate(self, node: exp.Expr, call: exp.Anonymous) -> exp.Expr:
        name = call.name.lower()
        if name not in ("count", "sum", "avg"):
            raise self._refused(node, name)
        if self._is_distinct(call) and not self._counts_keys(call):
            text = "DISTINCT goes with SAMPLE where the key of SAMPLE BY is counted: COUNT(DISTINCT key)"
            raise self._draft.source.at(node, text)
        self.found = True
        if name == "avg":
            return node
        if self._weight.denominator == 1:
            return _made(f"(e_ * {self._weight.numerator})", e_=node)
        scaled = f"e_ * {float(self._weight)!r}"
        return _made(f"CAST(ROUND({scaled}) AS BIGINT)" if name == "count" else f"({scaled})", e_=node)

    def _is_distinct(self, call: exp.Anonymous) -> bool:
        return bool(call.expressions) and isinstance(call.expressions[0], exp.Distinct)

    def _counts_keys(self, call: exp.Anonymous) -> bool:
        counted = call.expressions[0].expressions
        one = len(counted) == 1 and call.name.lower() == "count"
        return one and self._scope.bind(counted[0]) == self._bound

    def interval(self, node: exp.Expr) -> exp.Expr | None:
        """Half the width of the interval of an estimate; None of anything but an aggregate alone."""
        call = _call(node)
        if call is None or call.name.lower() not in ("count", "sum", "avg") or not call.expressions:
            return None
        name, (given, *_) = call.name.lower(), call.expressions
        scale = self._rest if name == "avg" else self._rest * float(self._weight)
        if self._is_distinct(call):
            return _made(f"{scale * T_99!r} * (SQRT(e_) + {T_99})", e_=node)
        if name == "count":
            given = (
                _made("1.0")
                if isinstance(given, exp.Star)
                else _made("CASE WHEN x_ IS NOT NULL THEN 1.0 END", x_=given)
            )
        part = _made(f"SUBSTRING({_DIGEST}, {_DIGITS + 1}, 1)", x_=self.key)
        condition = [node.expression.this.copy()] if isinstance(node, exp.Filter) else []
        found = Interval(expressions=[given.copy(), part, *condition])
        alike = name == "count" and self._of_lines
        found.meta.update(name=f"interval of {'sum' if name == 'count' and not alike else name}", scale=scale)
        return found


def _made(text: str, **parts: exp.Expr) -> exp.Expr:
    """An expression of the language, with others in the place of names."""
    (tree,) = Elf().parser().parse(Elf().tokenize(f"SELECT {text}"), text)
    assert tree is not None
    holder = exp.Paren(this=tree.expressions[0].copy())
    for node in holder.walk():
        node.meta.clear()  # places in another text
    for node in list(holder.find_all(exp.Column)):
        if node.name in parts:
            node.replace(exp.Paren(this=parts[node.name].copy()))
    made: exp.Expr = holder.this
    return made
